"""Variants of a group's kernels: compiled into a library, checked against each other and timed where they run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.cache import Cache
from ..base.errors import ResourceError, ToolchainError
from ..base.folders import scratch_folder
from ..base.resources import cache_folder
from ..bundle.build import Object, build_objects, link_library
from ..bundle.program import Weight
from ..explain.sizes import Evaluator
from ..expr import DTYPES, Expr
from ..graph import Value
from ..kernels.base import Buffer, Kernel, Operand, Packed
from ..pipeline.compilation import Compilation, Unit, kernel_headers
from ..pipeline.contract import bytes_of
from ..pipeline.records import Choices
from ..pipeline.tolerance import spread
from ..targets.base import Rendered, environment
from ..targets.toolchain import Tools

Array = np.ndarray[Any, Any]
SLACK = 256  # bytes behind a buffer
DRAWN = 1_048_573  # random elements, after which they repeat: a prime, so that rows differ
SUMMED = 1 << 13  # terms of a kernel's sums, which variants add in other orders
_ROUNDED = ("f64", "f32", "f16", "bf16")  # types of results that this changes


class Unmeasured(Exception):
    """A group cannot be run alone; the message says why."""


@dataclass(frozen=True, eq=False)
class Variant:
    """A group's kernels, rendered with some choices."""

    choices: Choices
    kernels: tuple[Kernel, ...]
    rendered: tuple[Rendered, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the kernels, made of their texts."""
        return tuple(r.symbol for r in self.rendered)


def variant_of(c: Compilation, unit: Unit, choices: Choices) -> Variant:
    """The kernels of a group of a compilation with values of parameters in place of the usual ones."""
    kernels = c.target.with_choices(choices).lower(c.graph, unit.group, c.plan.storage)
    return Variant(choices, tuple(kernels), tuple(map(c.target.render, kernels)))


def sources_of(c: Compilation, variants: Iterable[Variant]) -> dict[str, str]:
    """The sources of variants, by file name."""
    return {r.symbol + c.target.suffix: r.source for v in variants for r in v.rendered}


def compile_sources(c: Compilation, tools: Tools, sources: Mapping[str, str], folder: Path) -> list[Object]:
    """Objects of sources, from the cache where they are there.

    Raises:
        ToolchainError: the compiler failed.
    """
    cache, options = Cache(cache_folder() if c.options.cache else None), c.options
    return build_objects(sources, kernel_headers(c), tools.compiler, tools.flags, cache, options.workers, folder)


class _Step(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_int64),
        ("tasks", ctypes.c_int64),
        ("buf", ctypes.c_void_p),
        ("dim", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
    )


class KernelBench:
    """Runs variants of the kernels of one group over the same random contents.

    Args:
        compilation: what the group is of.
        sizes: sizes of the symbolic dimensions.
        tools: what compiles kernels.
    """

    def __init__(self, compilation: Compilation, sizes: Evaluator, tools: Tools) -> None:
        self.compilation, self.sizes, self.tools = compilation, sizes, tools
        self.taken: list[int] = []  # all memory
        self.places: dict[Operand, int] = {}
        self.values: dict[Value, tuple[int, Array]] = {}  # where it is, and what it holds at first
        self.originals: dict[Value, int] = {}  # where the latter lies beside it
        self.swept = 0, 0  # memory that is written between two runs, and its bytes
        self.random = np.random.default_rng(0)
        self.library: ctypes.CDLL | None = None

    def __enter__(self) -> KernelBench:
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.taken:
            assert self.library is not None
            self.library.t_drop(ctypes.c_void_p(place))

    def add(self, variants: Sequence[Variant]) -> dict[Variant, Callable[[], float]]:
        """Compiles variants; gives of each a function that runs it and returns the seconds that it took.

        One that the compiler refuses is left out when there are others.

        Raises:
            ToolchainError: the compiler failed on the only one.
            Unmeasured: the group cannot be run alone.
        """
        try:
            library, order = self._library(variants)
        except ToolchainError:
            if len(variants) == 1:
                raise
            return {v: call for one in variants for v, call in self._alone(one).items()}
        self.library = library
        if not self.swept[0]:
            size = int(library.t_swept())
            self.swept = self._get(size), size
        return {v: self._call(v, library, order) for v in variants}

    def results(self, run: Callable[[], float], variant: Variant) -> dict[Value, Array]:
        """What a variant computes from the first contents of values: the elements of those that it writes."""
        run()
        written = dict.fromkeys(b.operand for k in variant.kernels for b in k.buffers if b.written)
        return {o: self._read(o) for o in written if isinstance(o, Value)}

    def _reset(self) -> None:
        """The first contents of all values."""
        for value, (place, first) in self.values.items():
            self._copy(place, self.originals[value], first.nbytes)

    def _read(self, value: Value) -> Array:
        place, first = self.values[value]
        out = np.empty_like(first)
        self._copy(out.ctypes.data, place, out.nbytes)
        return elements(value, out)

    def _alone(self, variant: Variant) -> dict[Variant, Callable[[], float]]:
        try:
            return self.add([variant])
        except ToolchainError:
            return {}

    def _library(self, variants: Sequence[Variant]) -> tuple[ctypes.CDLL, dict[str, int]]:
        suffix = self.compilation.target.suffix
        sources = sources_of(self.compilation, variants)
        order = {name.removesuffix(suffix): k for k, name in enumerate(sorted(sources))}
        template = environment(self.compilation.target.search).get_template(f"variants{suffix}.j2")
        sources[f"variants{suffix}"] = template.render(symbols=list(order))
        with scratch_folder() as folder:
            objects = compile_sources(self.compilation, self.tools, sources, folder)
            library = ctypes.CDLL(str(link_library(self.tools.compiler, objects, folder)))
        library.t_get.restype, library.t_get.argtypes = ctypes.c_void_p, (ctypes.c_int64,)
        library.t_copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        library.t_copy.restype = None
        library.t_swept.restype, library.t_sweep.restype = ctypes.c_int64, None
        library.t_sweep.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        library.t_time.restype = ctypes.c_double
        return library, order

    def _call(self, variant: Variant, library: ctypes.CDLL, order: Mapping[str, int]) -> Callable[[], float]:
        steps = (_Step * len(variant.kernels))()
        kept: list[object] = [steps]
        for step, kernel, made in zip(steps, variant.kernels, variant.rendered, strict=True):
            places = (ctypes.c_void_p * max(len(kernel.buffers), 1))(*map(self._place, kernel.buffers))
            dims = (ctypes.c_int64 * max(len(made.dims), 1))(*map(self._size, made.dims))
            kept += [places, dims]
            step.kernel, step.tasks = order[made.symbol], self._size(kernel.if_launched(kernel.tasks))
            step.buf, step.dim = ctypes.addressof(places), ctypes.addressof(dims)
            step.scratch = self._get(self._size(kernel.scratch))

        def run() -> float:
            # As in a run of the model: what the kernel before wrote lies in the caches, and weights do not.
            library.t_sweep(*self.swept)
            self._reset()
            seconds = float(library.t_time(kept[0], len(variant.kernels)))
            if seconds < 0:
                raise Unmeasured("the device refused a kernel")
            return seconds

        return run

    def _size(self, size: Expr) -> int:
        known = self.sizes.integer(size)
        if known is None:
            raise Unmeasured("its sizes are known only in a run")
        return known

    def _get(self, size: int) -> int:
        assert self.library is not None
        place = self.library.t_get(size + SLACK)
        if not place:
            raise ResourceError(f"tuning: no memory for {size} bytes", "give smaller --dims")
        self.taken.append(place)
        return int(place)

    def _copy(self, to: int, source: int, size: int) -> None:
        assert self.library is not None
        self.library.t_copy(to, source, size)

    def _place(self, b: Buffer) -> int:
        operand = b.operand
        if operand not in self.places:
            size = self._size(bytes_of(b)) + b.start_bytes
            place = self.places[operand] = self._get(size)
            if isinstance(operand, Packed) or (isinstance(operand, Value) and operand.const is not None):
                at = place
                for part in Weight(operand).parts():
                    data = np.ascontiguousarray(part)
                    self._copy(at, data.ctypes.data, data.nbytes)
                    at += data.nbytes
            elif isinstance(operand, Value):
                first = self._contents(operand, size)
                self.values[operand] = place, first
                self.originals[operand] = self._get(size)
                self._copy(self.originals[operand], first.ctypes.data, size)
        return self.places[operand] + b.start_bytes

    def _contents(self, value: Value, size: int) -> Array:
        """Floats from -1 to 1, integers from 0 to 7: small sums, and indices that are mostly in range."""
        name, count = value.dtype.name, size // value.dtype.size
        if value.dtype.is_float and value.dtype.size > 1:
            drawn = np.resize(self.random.uniform(-1, 1, min(count, DRAWN)), count)
            if name == "bf16":
                bits = drawn.astype(np.float32).view(np.uint32) >> 16
                return bits.astype(np.uint16).view(np.uint8)
            return drawn.astype({"f64": np.float64, "f16": np.float16}.get(name, np.float32)).view(np.uint8)
        whole = np.resize(self.random.integers(0, 2 if name == "bool" else 8, min(count, DRAWN)), count)
        return whole.astype(f"u{value.dtype.size}").view(np.uint8)


def elements(value: Value, data: Array) -> Array:
    """Bytes as the elements of a value: floats, or what is compared as it lies."""
    name = value.dtype.name
    if name == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.view({"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(name, np.uint8))


def agree(found: Array, usual: Array, dtype: str) -> bool:
    """Whether a variant's results are the usual ones but for the order of its sums, and a rounding to a half.

    >>> agree(np.float32([1, 2]), np.float32([1, 2.00001]), "f32"), agree(np.float32([1]), np.float32([1.1]), "f32")
    (True, False)
    """
    if dtype not in _ROUNDED:
        return bool((found == usual).all())
    a, b = found.astype(np.float64), usual.astype(np.float64)
    finite = np.isfinite(b)
    if not (np.isfinite(a) == finite).all() or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    largest = np.abs(b[finite]).max(initial=0.0)
    allowed = spread({dtype: 1, DTYPES[dtype].compute: SUMMED})
    return bool((np.abs(a[finite] - b[finite]) <= allowed * largest).all())
