"""What the stand-ins for nvcc and xcrun share: the host compiler, and the emulator's own objects."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# The compiled code runs here and nowhere else.
MACHINE = ["-march=native"] if platform.machine() == "x86_64" else ["-mcpu=native"]
CODE = ["-O2", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-strict-aliasing", *MACHINE]
SANITIZE = (
    [f"-fsanitize={kinds}", "-fno-omit-frame-pointer", "-g"] if (kinds := os.environ.get("T_EMULATE_SANITIZE")) else []
)


def find_compiler(name: str = "clang++", otherwise: str = "g++") -> str:
    """The newest clang++ (clang), else g++ (gcc); T_EMULATE_CXX names another C++ compiler.

    Before 16 clang has no _Float16 on x86-64, and a plain name may be that of an old one beside newer ones.
    """
    if name.endswith("++") and (told := os.environ.get("T_EMULATE_CXX")):
        return told
    numbered = [f"{name}-{version}" for version in range(22, 13, -1)]
    names = [*numbered[:-2], name, *numbered[-2:], otherwise]
    found = next((path for each in names if (path := shutil.which(each))), None)
    if not found:
        sys.exit("emulator: neither clang++ nor g++ is on PATH")
    return found


def find_linker() -> list[str]:
    """gold where it is on PATH: it reads libstdc++ in a quarter of the time that ld takes."""
    return ["-fuse-ld=gold"] if shutil.which("ld.gold") and not SANITIZE else []


def own_symbols() -> list[str]:
    """What keeps g++ from symbols that are one for the whole process: a library with one is never unloaded."""
    return ["-fno-gnu-unique"] if "clang" not in Path(find_compiler().split()[0]).name else []


def run(command: list[str], text: str | None = None, capture: bool = False) -> str:
    """Runs a command, with `text` as its input; gives its output if captured. Exits with its status on failure."""
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE if capture else None, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout if capture else ""


def digest() -> str:
    """Names the state of the emulator, its compiler and its settings; a part of its version, for caches of objects."""
    total = hashlib.sha256(repr((find_compiler(), CODE, SANITIZE)).encode())
    for path in sorted(path for path in HERE.rglob("*") if path.suffix in (".h", ".cpp", "") and path.is_file()):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def runtime_objects(sources: list[str]) -> list[str]:
    """Objects of the emulator itself, from source files below tests/emulation; compiled once for each state of them."""
    quick = ["-O1"] if SANITIZE else []  # or compiling it takes longer than what it is for
    command = [find_compiler(), "-std=c++17", "-fvisibility=hidden", *CODE, *own_symbols(), *quick, *SANITIZE]
    state = hashlib.sha256(repr((digest(), command)).encode()).hexdigest()[:16]
    cache = os.environ.get("TORSHC_CACHE_DIR") or Path.home() / ".cache" / "torshc"
    folder = Path(cache) / "emulation"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    objects = []
    for source in sources:
        target = folder / f"{source.replace('/', '-')}-{state}.o"
        if not target.exists():
            part = target.with_suffix(f".{os.getpid()}")
            run([*command, "-c", str(HERE / source), "-o", str(part)])
            part.replace(target)
        objects.append(str(target))
    return objects


def expand_responses(arguments: list[str]) -> list[str]:
    """Arguments with @file replaced by the words of the file, where there is one."""
    expanded: list[str] = []
    for argument in arguments:
        file = Path(argument[1:])
        is_file = argument.startswith("@") and file.is_file()
        expanded += expand_responses(shlex.split(file.read_text())) if is_file else [argument]
    return expanded
