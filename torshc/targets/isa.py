"""Instruction sets: what the host or a named processor can do, and the compiler flags that say so.

LLVM knows the processors, so the answer does not depend on which compiler there is: kernels are rendered for a vector
width before a compiler is looked for.
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torshc.base.errors import ConfigError, ToolchainError, did_you_mean

from .processes import execute

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+\-]{0,63}\Z")

# The x86-64 psABI levels: what each adds.
_LEVELS = (
    ("x86-64-v2", ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")),
    ("x86-64-v3", ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
# Beyond the levels: what multiplies narrow types, as compilers call it.
_EXTRAS = ("avxvnni", "avx512vnni", "avx512bf16", "avx512fp16")
# Linux allows tiles to a process that asks, and may refuse: only libraries that use them depend on it.
_TILES = ("amx-tile", "amx-bf16", "amx-int8")
# The same of AArch64: products of bytes, by vectors and by squares of sums, and of bf16.
_ARM_EXTRAS = ("dotprod", "i8mm", "bf16")
# Processors with extras that a library may have versions for: Xeons from Sapphire Rapids on, the same where Linux
# refuses tiles (they add pairs of bf16 at half the rate of multiply-adds, so kernels differ), AMD from Zen 4 on;
# Arm's from Neoverse V1 and N2 on, from Neoverse N1 on, and all.
_VARIANTS = {
    "x86-64-v4-amx": ("x86-64-v4", ("avx512vnni", "avx512bf16", *_TILES)),
    "x86-64-v4-fp16": ("x86-64-v4", ("avx512vnni", "avx512bf16", "avx512fp16")),
    "x86-64-v4-bf16": ("x86-64-v4", ("avx512vnni", "avx512bf16")),
    "armv8.2-a-bf16": ("generic", _ARM_EXTRAS),
    "armv8.2-a-dotprod": ("generic", ("dotprod",)),
    "armv8-a": ("generic", ()),
}
# The same of processors that LLVM names.
_PROCESSORS = {
    **dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"),
        ("avxvnni", "avx512vnni", "avx512bf16", "avx512fp16", *_TILES),
    ),
    **dict.fromkeys(("znver4", "znver5"), ("avx512vnni", "avx512bf16")),
}
# What a library for an architecture may hold versions for, the best first.
_VERSIONS = {
    "x86_64": (*(v for v in _VARIANTS if v.startswith("x86")), *(v for v, _ in reversed(_LEVELS)), "x86-64"),
    "aarch64": tuple(v for v in _VARIANTS if v.startswith("arm")),
}
VERSIONS = tuple(name for names in _VERSIONS.values() for name in names)


@dataclass(frozen=True)
class Isa:
    """An instruction set.

    Attributes:
        arch: "x86_64", "aarch64", or what the machine calls itself.
        mcpu: the processor by LLVM's name; for the host the level that it reaches, e.g. "x86-64-v3".
        tune: the processor to schedule for, or "".
        extras: features beyond ``mcpu``.
        lanes: 32-bit lanes of its vectors: 16, 8, 4 or 1.
    """

    arch: str
    mcpu: str
    tune: str
    extras: tuple[str, ...]
    lanes: int

    @property
    def name(self) -> str:
        """The short name of the level."""
        return self.processor or self.arch

    @property
    def processor(self) -> str:
        """The processor's name for ``--mcpu``."""
        same = (name for name, known in _VARIANTS.items() if known == (self.mcpu, self.extras))
        return next(same, f"{self.mcpu}-amx" if self.mcpu == "x86-64-v4" and self.has_tiles else self.mcpu)

    @property
    def has_tiles(self) -> bool:
        """Whether code for it may use tiles of sums."""
        return "amx-tile" in self.extras

    def asking_for(self, needs: Collection[str]) -> Isa:
        """This level without the tiles that `needs` does not name: a library asks Linux for what its kernels use."""
        return replace(self, extras=tuple(e for e in self.extras if e not in _TILES or e in needs))

    @property
    def cpu_features(self) -> tuple[str, ...]:
        """The features that the library asks the processor for when it is opened, by the names of ``t_cpu.c``."""
        if self.arch != "x86_64":
            return self.extras
        levels = {16: 3, 8: 2}.get(self.lanes, 1 if self.mcpu == "x86-64-v2" else 0)
        return (*(name for _, needs in _LEVELS[:levels] for name in needs if name != "cx16"), *self.extras)

    @property
    def baseline(self) -> Isa:
        """The level that all processors of its kind have."""
        return _baseline(self.arch) if self.arch in _BASELINE else self

    def flags(self, kind: str) -> tuple[str, ...]:
        """Flags for a compiler of ``kind`` "clang", "gcc" or "zig", without the tuning.

        >>> Isa("x86_64", "x86-64-v3", "", (), 8).flags("zig")
        ('-march=x86_64_v3', '-DTORSHC_LANES=8')
        >>> Isa("aarch64", "neoverse-n1", "", ("dotprod",), 4).flags("gcc")
        ('-mcpu=neoverse-n1+dotprod', '-DTORSHC_LANES=4')
        """
        mcpu = self.mcpu.replace("-", "_") if kind == "zig" else self.mcpu
        if self.arch == "x86_64":
            flags = [f"-march={mcpu}", *(f"-m{extra}" for extra in self.extras)]
        else:
            flag = f"-mcpu={mcpu}" if mcpu else ""
            if self.extras and mcpu in ("", "generic"):
                # What is beyond Armv8 goes with 8.2, without which assemblers do not take it.
                flag = "-mcpu=generic+v8_2a" if kind == "zig" else "-march=armv8.2-a"
            flags = ["+".join((flag, *self.extras))] if flag else []
        if self.lanes == 16:
            flags.append("-mprefer-vector-width=512")  # compilers split 64-byte vectors in two where they think it wise
        return (*flags, f"-DTORSHC_LANES={self.lanes}")


def lanes(mcpu: str | None = None) -> int:
    """32-bit lanes of a vector of this processor, the host when None: 16 (AVX-512), 8 (AVX2), 4 (SSE, NEON) or 1."""
    return resolve(mcpu).lanes


# For another machine whose processor is not named: what all of its kind have.
_LIBRARY = re.compile(r"(-(gnu|musl)\w*)?\Z")  # not Android's C library, which has no libpthread to link
_BASELINE = {"x86_64": ("x86-64", 4), "aarch64": ("", 4)}


def _baseline(arch: str) -> Isa:
    mcpu, width = _BASELINE[arch]
    return Isa(arch, mcpu, "", (), width)


@lru_cache
def resolve(mcpu: str | None = None, triple: str = "") -> Isa:
    """The instruction set of a processor by LLVM's name ("znver4", "x86-64-v3", "cortex-a76"), the host when None.

    Features may follow the name, as in "x86-64-v4+avx512vnni".

    Args:
        triple: another machine than this; without a processor, what all of its kind have.

    Raises:
        ConfigError: LLVM knows no such processor for the machine's architecture, or there is no such machine.
    """
    here = _arch(platform.machine())
    arch = _arch(triple.partition("-")[0]) if triple else here
    system, _, library = triple.partition("linux")
    if triple and (arch not in (here, *_BASELINE) or not system.endswith("-") or not _LIBRARY.match(library)):
        raise ConfigError(
            f"--triple {triple}: torshc has no such machine",
            f"{' or '.join(_BASELINE)} with Linux and glibc or musl, as in x86_64-linux-gnu",
        )
    if mcpu in (None, "native", "host"):
        return _baseline(arch) if triple else _host(arch)
    assert mcpu is not None
    if not _NAME.match(mcpu):
        raise ConfigError(f"--mcpu {mcpu[:80]!r} is not the name of a processor", "for example --mcpu x86-64-v3")
    name, *more = mcpu.split("+")
    known = _ARM_EXTRAS if arch == "aarch64" else _EXTRAS + _TILES
    if others := [feature for feature in more if feature not in known]:
        raise ConfigError(
            f"--mcpu {mcpu}: torshc has nothing for the feature {others[0]!r}", f"those it knows are {', '.join(known)}"
        )
    named = _named(arch, name)
    return replace(named, extras=tuple(e for e in known if e in (*named.extras, *more)))


def _named(arch: str, mcpu: str) -> Isa:
    if mcpu in _VARIANTS and mcpu in _VERSIONS.get(arch, ()):
        return Isa(arch, _VARIANTS[mcpu][0], "", _VARIANTS[mcpu][1], 16 if arch == "x86_64" else 4)
    width = _lanes_of(arch, mcpu)
    return Isa(arch, mcpu, "", _arm_extras(mcpu) if arch == "aarch64" else _PROCESSORS.get(mcpu, ()), width)


def versions_of(isa: Sequence[str], mcpu: str, triple: str = "") -> tuple[str, ...]:
    """The processors that a library has a version for, the best first; just ``mcpu`` where no versions are named.

    Raises:
        ConfigError: these are no versions, or a processor is named too, or they are for another machine.
    """
    if not isa:
        return (mcpu,)
    for name in isa:
        if name not in VERSIONS:
            raise ConfigError(
                f"--isa cannot hold {name[:80]!r}{did_you_mean(name, VERSIONS)}", f"take some of {', '.join(VERSIONS)}"
            )
    if mcpu not in ("native", *isa):
        raise ConfigError(f"--mcpu {mcpu} goes with one version, and --isa names them", "leave one of the two out")
    arch = resolve(None, triple).arch
    known = _VERSIONS.get(arch, ())
    if others := [name for name in isa if name not in known]:
        raise ConfigError(
            f"--isa cannot hold {others[0]}: this library is for {arch}",
            f"take some of {', '.join(known)}" if known else "leave it out",
        )
    return tuple(name for name in known if name in isa)


def version_mark(isa: Sequence[str], mcpu: str) -> str:
    """The mark in the names of a version among others of one library, as "v3"; empty for the only one."""
    level = re.sub(r"x86-64|armv8(\.2)?-a|-", "", mcpu)
    return (level or "v1") if len(isa) > 1 else ""


def kernel_prefix(version: str) -> str:
    """The prefix of the names of kernels."""
    return f"k{version}_" if version else "k"


def _arch(name: str) -> str:
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name.lower(), name.lower())


def llvm_binding() -> Any:
    """LLVM, through llvmlite."""
    try:
        import llvmlite.binding as llvm  # start-up: loads LLVM
    except (ImportError, OSError) as error:  # llvmlite's own message leaves the loader's out
        raise ToolchainError(
            f"LLVM cannot be loaded: {error.__context__ or error}",
            "if memory is limited (ulimit -v), raise the limit; else reinstall llvmlite",
        ) from error
    return llvm


def _host(arch: str) -> Isa:
    llvm = llvm_binding()
    has = {name for name, on in llvm.get_host_cpu_features().items() if on}
    name = llvm.get_host_cpu_name()
    tune = name if _NAME.match(name) and name != "generic" else ""
    if arch == "aarch64":
        return Isa(arch, tune, "", _host_arm_extras(), 4)
    if arch != "x86_64":
        return Isa(arch, "", "", (), 1)
    # The level, not the processor's name: virtual machines hide features that the name would promise.
    level = "x86-64"
    for candidate, needs in _LEVELS:
        if not has.issuperset(needs):
            break
        level = candidate
    width = {"x86-64-v4": 16, "x86-64-v3": 8}.get(level, 4)
    wanted = _EXTRAS + (_TILES if has.issuperset(_TILES) else ())
    extras = tuple(e for e in wanted if e in has and (width == 16 or e == "avxvnni") and width >= 8)
    return Isa(arch, level, tune, extras, width)


_PROBE_AVX512 = """
define void @f(ptr %p) {
  %x = load <16 x float>, ptr %p
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %p
  ret void
}
"""
_PROBE_AVX2 = """
define void @f(ptr %p) {
  %x = load <8 x i32>, ptr %p
  %y = add <8 x i32> %x, %x
  store <8 x i32> %y, ptr %p
  ret void
}
"""


def _lanes_of(arch: str, mcpu: str) -> int:
    """Asks LLVM which registers it takes for 16 floats; llvmlite has no table of a processor's features."""
    llvm = llvm_binding()
    if arch not in ("x86_64", "aarch64"):
        return 1
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{arch}-unknown-linux-gnu"
    target = llvm.Target.from_triple(triple)
    if not _is_known(triple, mcpu):
        raise ConfigError(
            f"--mcpu {mcpu}: LLVM knows no such {arch} processor",
            "use a name such as x86-64-v3, x86-64-v4, znver4 or skylake-avx512, or leave it out for this machine",
        )
    if arch == "aarch64":
        return 4
    # Some processors prefer 256 bits although they have 512; the question is what they have.
    machine = target.create_target_machine(cpu=mcpu, features="-prefer-256-bit", opt=1)
    text = machine.emit_assembly(llvm.parse_assembly(_PROBE_AVX512))
    if "zmm" in text:
        return 16
    avx2 = target.create_target_machine(cpu=mcpu, opt=1).emit_assembly(llvm.parse_assembly(_PROBE_AVX2))
    return 8 if "vpaddd" in avx2 and "ymm" in avx2 else 4


# A loop over bytes or floats, and what it becomes where a processor has an extra.
_PROBE_BYTES = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @f(ptr %p, ptr %q) {{
  %a = load <16 x i8>, ptr %p
  %b = load <16 x i8>, ptr %q
  %x = {extend} <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %z = mul <16 x i32> %x, %y
  %s = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %z)
  ret i32 %s
}}
"""
_PROBE_HALVES = """
define void @f(ptr %p, ptr %q) {
  %x = load <4 x float>, ptr %p
  %y = fptrunc <4 x float> %x to <4 x bfloat>
  store <4 x bfloat> %y, ptr %q
  ret void
}
"""
_ARM_PROBES = {
    "dotprod": (_PROBE_BYTES.format(extend="sext"), "sdot"),
    "i8mm": (_PROBE_BYTES.format(extend="zext"), "usdot"),
    "bf16": (_PROBE_HALVES, "bfcvtn"),
}


def _arm_extras(mcpu: str) -> tuple[str, ...]:
    """The extensions beyond AArch64 of a processor that LLVM knows."""
    llvm = llvm_binding()
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(cpu=mcpu, opt=1)
    found = (
        (name, machine.emit_assembly(llvm.parse_assembly(text)), word) for name, (text, word) in _ARM_PROBES.items()
    )
    return tuple(name for name, text, word in found if word in text)


# Where Linux tells a process of an extra: the kind of the value that it gives, and a bit; t_cpu.c has them too.
_HWCAP, _HWCAP2 = 16, 26
_ARM_BITS = {"dotprod": (_HWCAP, 20), "i8mm": (_HWCAP2, 13), "bf16": (_HWCAP2, 14)}


def _host_arm_extras() -> tuple[str, ...]:
    """The extensions that Linux lets this process use; a virtual machine hides some of its processor's."""
    ask = getattr(ctypes.CDLL(None), "getauxval", None)
    if ask is None:
        return ()
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return tuple(name for name, (kind, bit) in _ARM_BITS.items() if ask(kind) >> bit & 1)


def _is_known(triple: str, mcpu: str) -> bool:
    """Whether LLVM knows the processor: for an unknown one it prints to stderr and falls back, so ask in a child."""
    code = (
        "import sys, llvmlite.binding as l; l.initialize_all_targets(); l.initialize_all_asmprinters();"
        "l.Target.from_triple(sys.argv[1]).create_target_machine(cpu=sys.argv[2])"
    )
    status, _, messages = execute([sys.executable, "-c", code, triple, mcpu], Path.cwd(), 60)
    if status != 0:
        last = (messages.splitlines() or ["no message"])[-1]
        raise ToolchainError(f"LLVM does not say whether it knows {mcpu}: {last}")
    return "not a recognized processor" not in messages
