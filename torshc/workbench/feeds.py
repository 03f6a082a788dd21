"""Arrays for a run: read from files, drawn at random, written back. Needs the runtime only, not the compiler."""

from __future__ import annotations

import math
import re
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..base.arrays import SLACK, Archive, TooLarge, load_array
from ..base.errors import ConfigError, OutputError, RunError, did_you_mean
from ..runtime import Needs, TensorSpec, UseSpec
from .draws import Bounds, draw

if TYPE_CHECKING:
    from ..pipeline.compilation import Compilation

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_DIGITS = 19  # of numbers beyond 64 bits
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,100}\Z")


def parse_dims(words: Iterable[str]) -> dict[str, int]:
    """Sizes of symbolic dimensions from ``batch=2,seq=64``.

    Raises:
        ConfigError: for anything else.

    >>> parse_dims(["batch=2,seq=64"])
    {'batch': 2, 'seq': 64}
    """
    found: dict[str, int] = {}
    for part in (p for word in words for p in word.split(",") if p):
        name, equals, size = part.rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdecimal() and len(size) < _DIGITS):
            raise ConfigError(f"{part!r} is not a dimension", "write --dims batch=2,seq=64")
        if name in found:
            raise ConfigError(f"the dimension {name!r} is given twice", "give each dimension one size")
        found[name] = int(size)
    return found


def read_inputs(words: Sequence[str], specs: Sequence[TensorSpec], kind: str = "input") -> Arrays:
    """Inputs from files.

    Args:
        words: ``NAME=x.npy``, ``NAME=all.npz:KEY``, or ``all.npz``, whose keys are the names.
        specs: the model's inputs; a file without a name belongs to the only input there is.
        kind: what they are called in messages.

    Raises:
        RunError: a file cannot be read, or holds something else, or more than inputs.
    """
    found: Arrays = {}
    names = [spec.name for spec in specs]
    by_name = {spec.name: spec for spec in specs}
    for word in words:
        # A name may hold "=", so the known ones are tried first.
        name = next((n for n in names if word.startswith(f"{n}=")), None)
        file = word[len(name) + 1 :] if name is not None else word
        if name is None and "=" in word and not Path(word).exists():
            name, _, file = word.partition("=")
            raise RunError(f"there is no {kind} {name!r}{did_you_mean(name, names)}", _list_names(names, kind))
        found.update(_read(name, file, by_name, kind))
    return found


def _read(name: str | None, file: str, specs: Mapping[str, TensorSpec], kind: str) -> Arrays:
    path, key = file, ""
    if not Path(file).exists() and ".npz:" in file:
        path, _, key = file.rpartition(".npz:")
        path += ".npz"
    names = [*specs]
    try:
        if not path.endswith(".npz") and not (Path(path).is_file() and zipfile.is_zipfile(path)):
            if name is None and len(names) != 1:
                raise RunError(
                    f"{path} belongs to no {kind} by name, and there are several",
                    f"write NAME={path}; {_list_names(names, kind)}",
                )
            name = name if name is not None else names[0]
            return {name: _read_sized(path, specs[name], partial(load_array, Path(path)))}
        with Archive(Path(path)) as archive:
            if name is None:
                if unknown := [key for key in archive.names if key not in specs]:
                    hint = did_you_mean(unknown[0], names)
                    raise RunError(
                        f"{path} holds {unknown[0]!r}, and there is no such {kind}{hint}",
                        f"{_list_names(names, kind)}: name its arrays so, or write NAME={path}:KEY for each",
                    )
                keys = {n: n for n in archive.names}
            else:
                wanted = key or (archive.names[0] if len(archive.names) == 1 else name)
                if wanted not in archive.names:
                    hint = did_you_mean(wanted, archive.names)
                    raise RunError(f"{path} holds no array {wanted!r}{hint}", f"write NAME={path}:KEY")
                keys = {name: wanted}
            return {n: _read_sized(path, specs[n], partial(archive.array, k)) for n, k in keys.items()}
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(
            f"{path} cannot be read as .npy or .npz: {error}", "write it with numpy.save or savez"
        ) from error


def _list_names(names: Sequence[str], kind: str) -> str:
    return f"the {kind}s are {', '.join(map(repr, names))}"


def _read_sized(path: str, spec: TensorSpec, read: Callable[[int | None], Array]) -> Array:
    """An array for an input, which is read only if it has no more bytes than the input, or few.

    Raises:
        RunError: it has far more.
    """
    dims = [d for d in spec.shape if isinstance(d, int)]
    known = len(dims) == len(spec.shape) and spec.numpy != np.object_
    try:
        return read(max(math.prod(dims) * spec.numpy.itemsize, SLACK) if known else None)
    except TooLarge as error:
        if not known:
            raise RunError(
                f"{path}: {error}", "write it with numpy.save, or with numpy.savez, which packs nothing"
            ) from error
        shape = ", ".join(map(str, spec.shape))
        raise RunError(
            f"{path}: {error} for {spec.name!r}", f"give an array of {spec.numpy}, of shape [{shape}]"
        ) from error


def symbols_of(specs: Sequence[TensorSpec]) -> list[str]:
    """Names of the symbolic dimensions of a model's inputs."""
    from ..expr import dims_of, parse_dim  # start-up: a static model needs none

    found = [parse_dim(d) for spec in specs for d in spec.shape if isinstance(d, str)]
    return dims_of(*found)


def require_dims(dims: Mapping[str, int], specs: Sequence[TensorSpec], needs: Needs) -> list[str]:
    """Names of the symbolic dimensions, of inputs and in what these hold.

    Raises:
        ConfigError: `dims` names another.
    """
    symbols = [*symbols_of(specs), *(e.name for e in needs.elements)]
    for name in dims:
        if name not in symbols:
            hint = did_you_mean(name, symbols) or f"; it has {', '.join(map(repr, symbols)) or 'none'}"
            raise ConfigError(f"the model has no symbolic dimension {name!r}{hint}")
    return symbols


def checked_dims(dims: Mapping[str, int] | None) -> Callable[[Compilation], None]:
    """What :func:`require_dims` says of a model before its kernels are compiled."""

    def check(done: Compilation) -> None:
        from ..pipeline.compilation import manifest_of  # start-up: bundles are run without the compiler

        manifest = manifest_of(done)
        require_dims(dims or {}, manifest.inputs, manifest.needs or Needs())

    return check


@dataclass(frozen=True)
class Feeds:
    """Inputs of a run: the arrays in the model's order, sizes of symbolic dimensions, names of what was drawn."""

    arrays: Arrays
    dims: Mapping[str, int]
    random: tuple[str, ...]


def make_inputs(
    specs: Sequence[TensorSpec],
    files: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    defaults: Sequence[int] = (1,),
    needs: Needs | None = None,
) -> Feeds:
    """Inputs from files, and the rest drawn from a seed: floats normally, integers by their use (:mod:`.draws`).

    Args:
        files: files, as :func:`read_inputs` takes them.
        dims: sizes of symbolic dimensions; of the others, those that a file's array shows are taken from it.
        defaults: sizes of what remains: the first symbol gets the first, and so on, the last standing for the rest.
        needs: needs of the model; where the defaults do not satisfy its conditions, other sizes are taken.

    Raises:
        ConfigError: `dims` names a dimension that the model does not have, or contradicts an array; or no sizes satisfy
            the conditions.
        RunError: a file cannot be read, or an input would not fit in memory.
    """
    needs = needs or Needs()
    given = read_inputs(files, specs)
    symbols = require_dims(dims or {}, specs, needs)
    sizes = {name: defaults[min(k, len(defaults) - 1)] for k, name in enumerate(symbols)}
    shown = _find_sizes(specs, given, needs)
    for name, size in (dims or {}).items():
        if shown.get(name, size) != size:
            raise ConfigError(
                f"{name!r} is {shown[name]} in the inputs that are given, and {size} is asked for",
                "leave its size out, or give inputs of that size",
            )
    fixed = {**shown, **(dims or {})}
    sizes |= fixed
    if needs.conditions or needs.preferences:
        from ..pipeline.fitting import fit_sizes  # start-up: a static model has no conditions

        sizes = fit_sizes(sizes, list(fixed), needs.conditions, needs.preferences)
    generator = np.random.default_rng(seed)
    uses = {specs[use.input].name: _range_at(use, sizes) for use in needs.uses}
    drawn = [s for s in specs if s.name not in given]
    arrays = {s.name: draw(s, shape_at(s, sizes), generator, uses.get(s.name, Bounds())) for s in drawn}
    for e in needs.elements:
        if (array := arrays.get(specs[e.input].name)) is not None and e.dim < array.size:
            array.reshape(-1)[e.dim] = sizes[e.name]
    return Feeds({s.name: {**given, **arrays}[s.name] for s in specs}, sizes, tuple(arrays))


def _find_sizes(specs: Sequence[TensorSpec], given: Mapping[str, Array], needs: Needs) -> dict[str, int]:
    """The sizes of symbolic dimensions in arrays that are given, and the elements that are sizes."""
    pairs = ((d, n) for s in specs if s.name in given for d, n in zip(s.shape, given[s.name].shape, strict=False))
    known = set(symbols_of(specs))
    elements = ((e, given.get(specs[e.input].name)) for e in needs.elements)
    told = {e.name: int(a.reshape(-1)[e.dim]) for e, a in elements if a is not None and _is_whole(a) and e.dim < a.size}
    return {d: n for d, n in pairs if isinstance(d, str) and d in known} | told


def _is_whole(array: Array) -> bool:
    return array.dtype.kind in "iub"


def _range_at(use: UseSpec, sizes: Mapping[str, int]) -> Bounds:
    """What the elements of an input are, at sizes of the symbols."""
    return Bounds(use.kind, use.least, _size_at(use.most, sizes) if isinstance(use.most, str) else use.most)


def shape_at(spec: TensorSpec, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor at sizes of the symbolic dimensions."""
    sizes = [d if isinstance(d, int) else _size_at(d, dims) for d in spec.shape]
    if any(size is None or size < 0 for size in sizes):
        raise RunError(
            f"the shape {spec.shape_text} of {spec.name!r} has a dimension without a size", "give sizes with --dims"
        )
    return tuple(size for size in sizes if size is not None)


def _size_at(text: str, dims: Mapping[str, int]) -> int | None:
    from ..expr import as_int, const, dim, substitute  # start-up: as above
    from ..pipeline.fitting import parse_named  # start-up: as above

    return as_int(substitute(parse_named(text, dims), {dim(name): const(size) for name, size in dims.items()}))


def require_interface(
    path: Path, inputs: Sequence[str], outputs: Sequence[str], names: Sequence[str], feeds: Arrays
) -> None:
    """Raises RunError where a model cannot be a reference, as it has other inputs or outputs than what is compared."""
    for kind, asked, there in (("input", inputs, feeds), ("output", names, outputs)):
        if lost := [name for name in asked if name not in there]:
            which = path if kind == "output" else "what is compared with it"
            raise RunError(
                f"{path} is another model: {which} has no {kind} {lost[0]!r}",
                "name the model that the bundle was made of",
            )


def plain(value: Any) -> Any:
    """An output of a reference; numbers as arrays."""
    return value if value is None or isinstance(value, list | dict) else np.asarray(value)


@dataclass(frozen=True)
class Range:
    """What is in an array, without its elements: NaN left out of the bounds and counted apart."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    mean: float | None
    nans: int


def ranges(arrays: Mapping[str, Any]) -> list[Range]:
    """Type, shape and range of what a run takes or gives; numbers have ranges."""
    return [_range(name, array) for name, array in arrays.items()]


def _range(name: str, array: Any) -> Range:
    if not isinstance(array, np.ndarray):
        kind = "sequence" if isinstance(array, list) else "map" if isinstance(array, dict) else "nothing"
        return Range(name, kind, (len(array),) if array else (), None, None, None, 0)
    if array.dtype == np.object_:
        return Range(name, "string", array.shape, None, None, None, 0)
    wide = array.astype(np.float64) if array.dtype.kind != "c" else np.abs(array)
    real = wide[~np.isnan(wide)]
    nans = int(wide.size - real.size)
    if not real.size:
        return Range(name, array.dtype.name, array.shape, None, None, None, nans)
    low, high, mean = float(real.min()), float(real.max()), float(real.mean())
    return Range(name, array.dtype.name, array.shape, low, high, mean, nans)


def write_outputs(target: str, arrays: Mapping[str, Any]) -> list[Path]:
    """Writes arrays to one .npz file, or to a folder as a .npy file each.

    An output's name becomes a file's or an entry's only where it is harmless; otherwise its number does.

    Returns:
        The files.

    Raises:
        OutputError: a file cannot be written; files are written beside their place and renamed.
        ConfigError: an output is a sequence or similar, which these files do not hold.
    """
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ConfigError(
                f"output {name!r} is not a tensor, so it cannot be written as .npy", "run the bundle from Python"
            )
    arrays = {n: a.astype(np.str_) if a.dtype == np.object_ else a for n, a in arrays.items()}
    try:
        if target.endswith(".npz"):
            return [_replace(Path(target), lambda part: _write_npz(part, arrays))]
        folder = Path(target)
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"cannot write {target}: it is no folder", "name a folder, or a file that ends in .npz")
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _replace(folder / f"{_file_name(name, k)}.npy", lambda part, a=array: _write_npy(part, a))
            for k, (name, array) in enumerate(arrays.items())
        ]
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}", "name another place") from error


def _file_name(name: str, number: int) -> str:
    return name if _SAFE_NAME.match(name) else f"output_{number}"


def _entry_name(name: str, number: int) -> str:
    """A name inside an archive: it may hold slashes, but must stay inside when it is unpacked."""
    parts = name.split("/")
    harmless = name.isprintable() and "\\" not in name and len(name) <= 200 and ".." not in parts
    return name if harmless and name and not name.startswith("/") else f"output_{number}"


def _replace(path: Path, write: Any) -> Path:
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _write_npy(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    # Not np.savez: it takes names as keywords, so that a tensor called "file" would not survive.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for k, (name, array) in enumerate(arrays.items()):
            with archive.open(f"{_entry_name(name, k)}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
