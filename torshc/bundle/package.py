"""Writing a bundle: beside its place, then renamed, so that there is a whole one or none.

out.tsc/
    libmodel.so     the compiled model
    libNAME.so      the same, by the name that programs are linked with
    model.h         its C interface
    NAME.h          the same, by the model's own names
    NAME.pc         for pkg-config; NAMEConfig.cmake for CMake
    libNAME.a       the model as a static library, on request
    weights.bin     its weights, unless embedded or none
    manifest.json   what it is
    model.js        the model for browsers, with its types (model.d.ts) and a page (index.html, page.js, page.css)
    src/            the generated sources, on request
    obj/            the objects, on request
    test/           a program that checks and times the model, on request

A model that several processes share has a bundle for each of them in one (`bundle/ranks.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torshc.base.errors import ConfigError, OutputError

from ..base.digest import file_sha256
from ..base.folders import claim, remove, sweep
from ..base.manifest import FILE, FORMAT, MPI_LIBRARY, RANKS_FORMAT, Manifest
from ..base.options import is_prefix
from ..targets.toolchain import LIBRARY, archive_name, soname
from .elf import glibc_floor
from .manifest import COMPACT, hashed_form

if TYPE_CHECKING:
    import numpy.typing as npt

    from .weights import WeightsInfo

HEADER = "model.h"
WEIGHTS = "weights.bin"
SOURCES = "src"
OBJECTS = "obj"
TEST = "test"
SBOM = "sbom.cdx.json"
MPI = "mpi"  # of a model that several processes share: the sources of its library for MPI
_RANK = re.compile("rank[0-9]+")
BROWSER = ("model.js", "model.d.ts", "index.html", "page.js", "page.css")
# A library addresses its data relative to its code, 31 bits far.
EMBED_MAX = 1 << 30
_KNOWN = {LIBRARY, HEADER, WEIGHTS, SOURCES, OBJECTS, TEST, SBOM, FILE, *BROWSER}
_MANIFEST_MAX = 256 << 20
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a torshc bundle, whole or not, and holds nothing else.

    Raises:
        OSError: it cannot be read, so nobody knows.
    """
    manifest = folder / FILE
    try:
        if not folder.is_dir():
            return False
        names = {p.name for p in folder.iterdir()}
        if manifest.is_symlink() or not manifest.is_file() or manifest.stat().st_size > _MANIFEST_MAX:
            return False
        body = json.loads(manifest.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):  # others may be replacing it
        return False
    if isinstance(body, dict) and body.get("format") == RANKS_FORMAT:
        ranks = [p for p in folder.iterdir() if p.name not in (FILE, MPI_LIBRARY, MPI)]
        return all(_RANK.fullmatch(p.name) and is_bundle(p) for p in ranks)
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        return False
    return names <= {*_KNOWN, *own_files(str(body.get("prefix", "")))}


def own_files(prefix: str) -> tuple[str, ...]:
    """The files of a bundle that are named after its prefix."""
    if not is_prefix(prefix):
        return ()
    described = (f"{prefix}.pc", f"{prefix}-static.pc", f"{prefix}Config.cmake")
    return (f"{prefix}.h", soname(prefix), archive_name(prefix), *described)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            "free some space, check the permissions, or choose another path",
        ) from error


class BundleWriter:
    """A bundle in the making; nothing is at its place until :meth:`commit`.

        with BundleWriter(Path("out.tsc")) as bundle:
            weights = bundle.write_weights(arrays)
            ...                                     # render, compile and link what needs weights.id
            bundle.add_library(workdir / "libmodel.so")
            bundle.add_text("model.h", header)
            bundle.commit(manifest)

    Leaving the block without a commit, for whatever reason, removes all that was written. What a killed process left
    is removed by the next one that writes to the same place.

    Args:
        place: the folder to be; a bundle or an empty folder there is replaced.

    Raises:
        OutputError: something else is there, or the folder around it cannot be written.
    """

    def __init__(self, place: Path) -> None:
        self.place = Path(os.path.realpath(place))
        self._prefix = f".torshc-{hashlib.sha256(os.fsencode(self.place.name)).hexdigest()[:12]}-"
        self.folder = self.place
        self._lock = -1

    def __enter__(self) -> BundleWriter:
        with _writing(self.place):
            _check_place(self.place)
            sweep(self.place.parent.glob(f"{self._prefix}*.tmp"))
            self.folder, self._lock = claim(self._make_folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder != self.place:
            remove(self.folder)
        os.close(self._lock)

    def _make_folder(self) -> Path:
        folder = self.place.with_name(f"{self._prefix}{secrets.token_hex(6)}.tmp")
        folder.mkdir()
        return folder

    def copy(self, bundle: Path) -> None:
        """Copies all of a bundle but its manifest, its weights and a bill of materials, which names the weights' hash.

        Raises:
            OutputError: it cannot be read, or not written here.
        """
        with _writing(self.folder):
            ignored = shutil.ignore_patterns(FILE, WEIGHTS, SBOM)
            shutil.copytree(bundle, self.folder, symlinks=True, ignore=ignored, dirs_exist_ok=True)

    def write_weights(
        self, arrays: Iterable[Iterable[npt.NDArray[Any]]], embed: bool = False, identity: int | None = None
    ) -> WeightsInfo:
        """Writes weights.bin, an array at a time; with ``embed`` it is removed again by :meth:`add_library`.

        Args:
            identity: identity of the library that will read the file; None for that of what is written.

        Raises:
            ConfigError: too large to embed.
            OutputError: it cannot be written.
        """
        from .weights import write_weights  # start-up: a bundle that is copied has its file

        info = write_weights(self.folder / WEIGHTS, arrays, identity)
        if embed and info.bytes > EMBED_MAX:
            raise ConfigError(
                f"{info.bytes} bytes of weights cannot be embedded (at most {EMBED_MAX})", "leave --embed-weights out"
            )
        return info

    @property
    def glibc(self) -> str:
        """The oldest glibc that the library in the bundle can be loaded with; "" without one."""
        library = self.folder / LIBRARY
        return glibc_floor(library) if library.exists() else ""

    @property
    def weights(self) -> Path:
        """The weights file being written, to be linked in."""
        return self.folder / WEIGHTS

    def add_library(self, library: Path, embedded: bool = False, name: str = "") -> str:
        """Moves the library into the bundle; returns its SHA-256.

        Args:
            embedded: it holds the weights.
            name: what programs that are linked with it look for.
        """
        target = self.folder / LIBRARY
        with _writing(target):
            shutil.move(library, target)
            if name:
                self.add_link(name, LIBRARY)
            if embedded and not (self.folder / SOURCES).is_dir():  # whose script embeds them again
                self.weights.unlink(missing_ok=True)
            return file_sha256(target)

    def add_archive(self, archive: Path) -> None:
        """Moves the static library into the bundle."""
        with _writing(self.folder / archive.name):
            shutil.move(archive, self.folder / archive.name)

    def add_text(self, name: str, text: str) -> None:
        """Writes a text file of the bundle."""
        with _writing(self.folder / name):
            (self.folder / name).write_text(text, encoding="utf-8")

    def add_texts(self, texts: Mapping[str, str]) -> None:
        """Writes text files of the bundle."""
        for name, text in texts.items():
            self.add_text(name, text)

    def add_sources(self, texts: Mapping[str, str]) -> None:
        """Writes ``src/`` with these files."""
        with _writing(self.folder / SOURCES):
            (self.folder / SOURCES).mkdir()
        self.add_texts({f"{SOURCES}/{name}": text for name, text in texts.items()})

    def add_test(self, files: Mapping[str, bytes]) -> None:
        """Writes ``test/`` with these files, if there are any."""
        for name, data in files.items():
            with _writing(self.folder / TEST / name):
                (self.folder / TEST).mkdir(exist_ok=True)
                (self.folder / TEST / name).write_bytes(data)

    def add_objects(self, paths: Iterable[Path]) -> None:
        """Copies object files to ``obj/``."""
        target = self.folder / OBJECTS
        with _writing(target):
            target.mkdir()
            for path in paths:
                shutil.copyfile(path, target / path.name)

    def add_file(self, name: str, executable: bool, parts: Iterable[memoryview]) -> None:
        """Writes a file of the bundle a part at a time."""
        with _writing(self.folder / name):
            mode = 0o777 if executable else 0o666
            with open(self.folder / name, "xb", buffering=0, opener=partial(os.open, mode=mode)) as file:
                for part in parts:
                    while part:  # an unbuffered file may take less than it is given
                        part = part[file.write(part) :]

    def add_link(self, name: str, to: str) -> None:
        """Makes a name of the bundle a link to another."""
        with _writing(self.folder / name):
            (self.folder / name).symlink_to(to)

    def commit(self, manifest: Manifest | str, keep: Callable[[Path], None] | None = None) -> Path:
        """Writes the manifest and puts the bundle at its place, in one step.

        Args:
            keep: is shown the whole bundle before that.

        Raises:
            OutputError: it cannot be written, or something else appeared there meanwhile.
        """
        text = manifest if isinstance(manifest, str) else manifest.to_json()
        self.add_text(FILE, text)
        if (self.folder / SOURCES).is_dir():
            self.add_text(f"{SOURCES}/{COMPACT}", hashed_form(text))
        if keep is not None:
            keep(self.folder)
        with _writing(self.place):
            for _ in range(100):  # others may write to the same place at the same time
                try:
                    self.folder.rename(self.place)  # works when there is nothing, or an empty folder
                    return self.place
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise
                _check_place(self.place)
                with contextlib.suppress(FileNotFoundError):
                    self._replace()
                    return self.place
        raise OutputError(f"cannot write {self.place}: other processes keep changing it")

    def _replace(self) -> None:
        """Swaps the new bundle with the old one, which then lies in our folder and is removed."""
        if not _exchange(self.folder, self.place):
            aside = self.place.with_name(f"{self._prefix}{secrets.token_hex(6)}.tmp")
            self.place.rename(aside)
            self.folder.rename(self.place)
            remove(aside)


def _check_place(place: Path) -> None:
    """Raises OutputError unless a bundle may be written here."""
    if not place.parent.is_dir():
        raise OutputError(f"cannot write {place}: there is no folder {place.parent}", "create it first")
    if not os.path.lexists(place) or is_bundle(place):
        return
    if place.is_dir() and not any(place.iterdir()):
        return
    raise OutputError(
        f"{place} exists and is not a torshc bundle (or holds more than one); it is left alone",
        "name another place with -o, or remove it yourself",
    )


def _exchange(a: Path, b: Path) -> bool:
    """Swaps two names in one step; False where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))
