"""What a library holds of users' operators: their sources and headers, and what these are compiled and linked with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import ConfigError, ToolchainError
from ..ops.core.custom import Custom, label_of
from ..ops.core.custom_kernel import CustomKernel, HostKernel
from ..targets.base import HostFiles, environment
from .names import c_text

HEADERS = ("torshc_op.h", "t_custom.h")
_GLUE = "t_custom_calls.c"


@dataclass(frozen=True)
class CustomFiles:
    """Files by name, with their text.

    Attributes:
        sources: the users', and those that call them in a script.
        headers: what sources include.
        flags: folders of headers, by source; for those alone that have some.
        libraries: to link with.
        origins: whose a source is, for messages: the file, and where it was declared.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    origins: Mapping[str, tuple[Path, str]] = field(default_factory=dict)


NO_FILES = CustomFiles()


def custom_files(operators: Iterable[type[Custom]], files: HostFiles, suffix: str) -> CustomFiles:
    """The files of a model's operators for a target.

    Args:
        suffix: ending of the target's kernels; functions in CUDA go with ".cu".

    Raises:
        ConfigError: a file cannot be read, or two of them have one name or define one function.
    """
    kernels = [o for o in operators if issubclass(o, CustomKernel)]
    if not kernels:
        return NO_FILES
    made = _Collected()
    for o in kernels:
        cuda = o.sources.cuda if suffix == ".cu" else None
        for file in (o.sources.c, cuda):
            if file is not None:
                made.add(o, file, file is cuda)
    headers = {name: files.text(name) for name in HEADERS}
    hosted = sorted({o.sources.function for o in kernels if issubclass(o, HostKernel)})
    if hosted:
        glue = environment(files.search).get_template("custom_host.c.j2").render(functions=hosted)
        made.sources[_GLUE] = glue
        headers["t_custom_host.h"] = files.text("t_custom_host.h")
    libraries = tuple(dict.fromkeys(f"-l{name}" for o in kernels for name in o.sources.libraries))
    return CustomFiles(made.sources, {**made.headers, **headers}, made.flags, libraries, made.origins)


class _Collected:
    """The users' files, as operators name them."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.flags: dict[str, tuple[str, ...]] = {}
        self.origins: dict[str, tuple[Path, str]] = {}
        self._files: dict[str, Path] = {}
        self._functions: dict[tuple[str, bool], Path] = {}

    def add(self, o: type[CustomKernel], file: Path, cuda: bool) -> None:
        """Add a source with its headers; one that operators share gets a check for each of their functions."""
        name = self._name_source(f"op_{file.name}", file, o)
        other = self._functions.setdefault((o.sources.function, cuda), file)
        if other != file:
            raise ConfigError(
                f"{o.declared.place}: {file} defines the function {o.sources.function}(), and {other} does too",
                "give one of them another name, with function=",
            )
        line, declared = o.declared.line, c_text(Path(o.declared.file).name)
        words = {"line": line, "file": declared, "function": o.sources.function, "device": cuda}
        check = environment(("c",)).get_template("custom_check.j2").render(words)
        if name not in self.sources:
            self.sources[name] = f"#line 1 {c_text(file.name)}\n{_text(file, o)}"
        self.sources[name] += check
        if o.sources.includes:
            self.flags[name] = (*self.flags.get(name, ()), *(f"-I{_folder(f, o)}" for f in o.sources.includes))
        self.origins[name] = (file, o.declared.place)
        for header in o.sources.headers:
            self.headers[self._name_source(header.name, header, o)] = _text(header, o)

    def _name_source(self, name: str, file: Path, o: type[CustomKernel]) -> str:
        """The name of a file among the sources."""
        plain = name.isascii() and all(c.isalnum() or c in "._-" for c in name) and name[0].isalnum()
        if not plain or name.startswith("t_") or name in (*HEADERS, "model.h"):
            raise ConfigError(f"{o.declared.place}: a file cannot be called {file.name!r}", "rename it")
        other = self._files.setdefault(name, file)
        if other != file:
            raise ConfigError(f"{o.declared.place}: {file} and {other} have one name", "rename one of them")
        return name


def _folder(name: str, o: type[CustomKernel]) -> Path:
    """A folder of headers; one that is relative is so to the file that declares the operator."""
    return (Path(o.declared.file).absolute().parent / name).resolve()


def _text(file: Path, o: type[CustomKernel]) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {file}, which {o.declared.place} names: {why}", "mend the path") from error


@contextmanager
def blaming_users(custom: CustomFiles, operators: Iterable[type[Custom]]) -> Iterator[None]:
    """What compilers and the linker say of a user's file names that file, and what to do about it.

    Raises:
        ToolchainError: as they do.
    """
    try:
        yield
    except ToolchainError as error:
        if not custom.sources:
            raise
        for name, (file, declared) in custom.origins.items():
            if error.message.startswith(f"compiling {name}:"):
                raise ToolchainError(
                    f"{file}, which {declared} names, does not compile: {error.message}",
                    "mend the lines that the compiler names above; headers beside the file go in headers=, folders of "
                    "others in includes=",
                ) from error
        if error.message.startswith("linking "):
            asked = ", ".join(f"{label_of(o)} ({o.declared.place})" for o in operators if issubclass(o, CustomKernel))
            wanted = f"install the library of {' and '.join(custom.libraries)}, or " if custom.libraries else ""
            raise ToolchainError(error.message, f"{wanted}add what is missing to libraries= of {asked}") from error
        raise
