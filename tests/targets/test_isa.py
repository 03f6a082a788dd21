"""Instruction sets of this machine and of others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from torshc.base.errors import ConfigError
from torshc.targets.cpu.bf16 import DotKernel, choose_form
from torshc.targets.isa import VERSIONS, _host_arm_extras, kernel_prefix, resolve, version_mark, versions_of


def test_another_machine_has_what_all_of_its_kind_have() -> None:
    arm, intel = resolve(None, "aarch64-linux-gnu"), resolve(None, "x86_64-linux-musl")
    assert (arm.arch, arm.lanes, arm.flags("clang")) == ("aarch64", 4, ("-DTORSHC_LANES=4",))
    assert (intel.arch, intel.lanes, intel.cpu_features) == ("x86_64", 4, ())


@pytest.mark.parametrize("triple", ["x86_64-linux", "aarch64-unknown-linux-gnu", "aarch64-linux-musl"])
def test_forms_of_a_triple(triple: str) -> None:
    assert resolve(None, triple).arch == triple.partition("-")[0]


def test_a_processor_of_another_machine() -> None:
    assert resolve("cortex-a72", "aarch64-linux-gnu").flags("zig")[0] == "-mcpu=cortex_a72"
    with pytest.raises(ConfigError, match="knows no such aarch64 processor"):
        resolve("x86-64-v3", "aarch64-linux-gnu")


@pytest.mark.parametrize(
    "triple", ["riscv64-linux-gnu", "x86_64", "x86_64-pc-windows-msvc", "nowhere", "aarch64-linux-android"]
)
def test_a_machine_that_there_is_no_code_for(triple: str) -> None:
    with pytest.raises(ConfigError, match=f"--triple {triple}: torshc has no such machine") as refused:
        resolve(None, triple)
    assert refused.value.remedy == "x86_64 or aarch64 with Linux and glibc or musl, as in x86_64-linux-gnu"


def test_levels_with_instructions_for_halves() -> None:
    tiles = resolve("x86-64-v4-amx")
    assert (tiles.name, tiles.mcpu, tiles.lanes, tiles.has_tiles) == ("x86-64-v4-amx", "x86-64-v4", 16, True)
    assert {"amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512f"} <= set(tiles.cpu_features)
    assert tiles.flags("gcc")[-5:-2] == ("-mamx-tile", "-mamx-bf16", "-mamx-int8")
    pairs = resolve("x86-64-v4-bf16")
    assert pairs.name == "x86-64-v4-bf16" and set(pairs.cpu_features) < set(tiles.cpu_features)
    xeon = resolve("x86-64-v4-fp16")
    assert (xeon.name, xeon.has_tiles) == ("x86-64-v4-fp16", False) and set(pairs.cpu_features) < set(xeon.cpu_features)
    assert choose_form(xeon.extras) is choose_form(xeon.extras, rows=4) is None
    assert choose_form(pairs.extras) is DotKernel


def test_processors_that_llvm_names() -> None:
    xeon, amd = resolve("sapphirerapids"), resolve("znver4")
    assert (xeon.name, xeon.has_tiles) == ("sapphirerapids", True)
    assert (amd.name, amd.extras) == ("znver4", ("avx512vnni", "avx512bf16"))
    assert resolve("skylake-avx512").extras == ()


def test_features_beside_a_processor() -> None:
    """In one order, as a manifest lists them."""
    assert resolve("x86-64-v4+avx512bf16+avxvnni").extras == ("avxvnni", "avx512bf16")
    assert resolve("x86-64-v4-bf16+avxvnni").extras == ("avxvnni", "avx512vnni", "avx512bf16")
    assert resolve("neoverse-n1+i8mm", ARM).extras == ("dotprod", "i8mm")
    with pytest.raises(ConfigError, match=r"x86-64-v4\+sse9: torshc has nothing for the feature 'sse9'"):
        resolve("x86-64-v4+sse9")


def test_the_best_version_comes_first() -> None:
    assert versions_of(("x86-64-v3", "x86-64-v4", "x86-64-v4-amx"), "native") == (
        "x86-64-v4-amx",
        "x86-64-v4",
        "x86-64-v3",
    )
    marks = [version_mark(VERSIONS, name) for name in VERSIONS]
    assert marks == ["v4amx", "v4fp16", "v4bf16", "v4", "v3", "v2", "v1", "bf16", "dotprod", "v1"]
    assert all(kernel_prefix(m).isidentifier() for m in marks)


ARM = "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("processor", "extras"),
    [
        ("cortex-a72", ()), ("neoverse-n1", ("dotprod",)), ("cortex-x1", ("dotprod",)),
        ("neoverse-v1", ("dotprod", "i8mm", "bf16")), ("apple-m2", ("dotprod", "i8mm", "bf16")),
    ],
)  # fmt: skip
def test_what_processors_of_arm_multiply(processor: str, extras: tuple[str, ...]) -> None:
    """The library asks for it when it is opened; its host program runs on any, to say so."""
    isa = resolve(processor, ARM)
    assert isa.extras == isa.cpu_features == extras
    assert isa.flags("clang")[0] == "+".join((f"-mcpu={processor}", *extras))
    assert isa.baseline.flags("clang") == ("-DTORSHC_LANES=4",)


def test_versions_for_arm() -> None:
    names = ("armv8.2-a-bf16", "armv8.2-a-dotprod", "armv8-a")
    assert versions_of(names[::-1], "native", ARM) == names
    best, _, least = (resolve(name, ARM) for name in names)
    assert [resolve(name, ARM).name for name in names] == [*names]
    assert best.flags("gcc")[0] == "-march=armv8.2-a+dotprod+i8mm+bf16" and least.cpu_features == ()
    with pytest.raises(ConfigError, match="--isa cannot hold armv8-a: this library is for x86_64"):
        versions_of(("armv8-a",), "native", "x86_64-linux-gnu")


def test_linux_says_what_it_lets_a_process_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine may hide what the processor's name promises."""
    bits = {16: 1 << 20, 26: 1 << 14}

    def getauxval(kind: int) -> int:
        return bits[kind]

    monkeypatch.setattr("torshc.targets.isa.ctypes.CDLL", lambda _: SimpleNamespace(getauxval=getauxval))
    assert _host_arm_extras() == ("dotprod", "bf16")


def test_a_library_asks_for_the_tiles_that_it_uses() -> None:
    """A system may refuse them to a process."""
    xeon = resolve("sapphirerapids")
    none, bytes_ = xeon.asking_for(()), xeon.asking_for(("amx-tile", "amx-int8"))
    assert (none.has_tiles, none.extras) == (False, ("avxvnni", "avx512vnni", "avx512bf16", "avx512fp16"))
    assert bytes_.has_tiles and "amx-bf16" not in bytes_.cpu_features
