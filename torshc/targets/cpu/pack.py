"""Right operands in panels: weights packed by NumPy when the bundle is written, other operands by a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np

from ...expr import I8, I32, DType, Expr, as_int, const
from ...expr import product as product_of
from ...expr.affine import strides_along
from ...graph import Value
from ...kernels.axes import join_axes
from ...kernels.base import AT_ONCE, Kernel, Packed, Temporary, view_elements
from ...kernels.heavy import Strided, add_buffer, plain, row_major, strided_operand, temporary
from ...kernels.nest import Buffers
from ...plan.storage import Storage
from .tiles import Tile

Array = np.ndarray[Any, Any]
QUAD = 4  # bytes of a word
STEP = 32  # halves along k that a step of tiles takes
HALF_COLUMNS = 16  # of a panel of halves, whatever the width of vectors: versions of a library share them
WAYS = 8  # of a first cache
BYTE_STEP = 64  # bytes along k that a step of tiles takes
WORD_COLUMNS = 16  # of a panel of their words


@dataclass(frozen=True)
class PackKernel(Kernel):
    """Panels [batch][ceil(N / columns)][K][columns] of b, zero padded.

    Attributes:
        batch: axes of independent matrices.
        k, n: extents of the matrix.
        source: the matrix over the batch axes, stepping along k and n.
        target: its panels.
        tile: whose columns make a panel.
    """

    kind: ClassVar[str] = "pack"
    template: ClassVar[str] = "pack.c.j2"

    batch: tuple[Expr, ...]
    k: Expr
    n: Expr
    source: Strided
    target: Strided
    tile: Tile

    @property
    def dtype(self) -> DType:
        """Type of the matrix."""
        return self.buffers[self.source.buffer].dtype


@dataclass(frozen=True)
class Panels:
    """Where a product finds its packed right operand.

    Attributes:
        operand: the packed constant or the temporary.
        start: offset of a matrix's first panel, over the batch axes.
        kernel: what packs it at run time, or None.
    """

    operand: Packed | Temporary
    start: Expr
    kernel: PackKernel | None = None


def panels(matrix: Array, columns: int) -> Array:
    """[..., K, N] as [..., ceil(N / columns), K, columns], zero padded.

    >>> panels(np.arange(6).reshape(2, 3), 2).tolist()
    [[[0, 1], [3, 4]], [[2, 0], [5, 0]]]
    """
    *batch, k, n = matrix.shape
    count = -(-n // columns)
    packed = (np.zeros if n % columns else np.empty)((*batch, count, k, columns), matrix.dtype)
    # A transposed matrix is read along its columns; more of them at a time than a cache has ways drive each other out.
    some = min(columns, WAYS) if matrix.strides[-1] > matrix.strides[-2] else columns
    for p, c in product(range(count), range(0, columns, some)):
        part = matrix[..., p * columns + c : min(p * columns + c + some, (p + 1) * columns)]
        packed[..., p, :, c : c + part.shape[-1]] = part
    return packed


def quads(matrix: Array, step: int = QUAD) -> Array:
    """Bytes [..., K, N] as words [..., K / 4, N], each four of k below each other, the lowest byte first.

    K is padded to a multiple of `step`.

    >>> quads(np.arange(10, dtype=np.int8).reshape(5, 2)).tolist()
    [[100925952, 117768961], [8, 9]]
    """
    *batch, k, n = matrix.shape
    count = -(-k // step) * (step // QUAD)
    long = np.zeros((*batch, count * QUAD, n), np.int8)
    long[..., :k, :] = matrix
    words = np.ascontiguousarray(np.moveaxis(long.reshape(*batch, count, QUAD, n), -2, -1))
    return words.view("<i4")[..., 0]


def words_of_halves(matrix: Array) -> Array:
    """Halves [..., K, N] as words [..., K / 2, N] of two k each, the first below, K padded to a multiple of 32.

    >>> [hex(word) for word in words_of_halves(np.array([[1], [2], [3]], np.uint16))[:3, 0]]
    ['0x20001', '0x3', '0x0']
    """
    *batch, k, n = matrix.shape
    long = np.zeros((*batch, -(-k // STEP) * STEP, n), np.uint16)
    long[..., :k, :] = matrix.view(np.uint16)
    words: Array = long[..., ::2, :] | long[..., 1::2, :].astype(np.uint32) << 16
    return words


def nibbles(matrix: Array) -> Array:
    """Numbers of 4 bits [..., K, N], K even, as bytes [..., K / 2, N], of two of k each, the first below.

    >>> nibbles(np.array([[1, -1], [2, 3]], np.int8)).tolist()
    [[33, 63]]
    """
    return (matrix[..., ::2, :] & 15) | (matrix[..., 1::2, :] << 4)


def words_of_nibbles(matrix: Array) -> Array:
    """Numbers of 4 bits [..., K, N], K a multiple of 8, 8 larger in words [..., K / 8, N].

    Byte j of a word has that of k = j below, and of k = j + 4 above.

    >>> [hex(word) for word in words_of_nibbles(np.arange(-8, 8, dtype=np.int8)[:, None])[:, 0]]
    ['0x73625140', '0xfbead9c8']
    """
    *batch, k, n = matrix.shape
    numbers = ((matrix + 8) & 15).astype(np.uint8).reshape(*batch, k // 8, 2, 4, n)
    pairs = numbers[..., 0, :, :] | numbers[..., 1, :, :] << 4
    words: Array = np.ascontiguousarray(np.moveaxis(pairs, -2, -1)).view("<u4")[..., 0]
    return words


def panel_size(tile: Tile, k: Expr, n: Expr) -> Expr:
    """Elements of all panels of a matrix."""
    return tile.panels(n) * k * tile.columns


def pack_constant(element: Expr, batch: Sequence[Expr], k: Expr, n: Expr, tile: Tile, form: str = "") -> Panels | None:
    """Panels of a constant that is read as `element` (a load at logical indices) over batch axes, k and n.

    Args:
        form: "words" packs bytes in words of four, see :func:`quads`, "steps" those of whole steps of tiles, "nibbles"
            see :func:`nibbles`, "words of nibbles" :func:`words_of_nibbles`, "halves" see :func:`words_of_halves`.

    Returns:
        None when the constant is not read with plain strides.
    """
    source = element.data
    assert isinstance(source, Value) and source.const is not None
    linear = const(0)
    for i, d in zip(element.args, source.shape, strict=True):
        linear = linear * d + i
    found = strides_along(linear, [*batch, k, n])
    steps = [as_int(s) for s in found[0]] if found else [None]
    start = as_int(found[1]) if found else None
    kept = [(a, s) for a, s in zip(batch, steps, strict=False) if s != 0]
    extents = [as_int(a.args[0]) for a in (*(a for a, _ in kept), k, n)]
    if start is None or None in steps or None in extents:
        return None
    shape = [e for e in extents if e is not None]
    strides = [s for s in (*(s for _, s in kept), *steps[len(batch) :]) if s is not None]

    def make(array: Array) -> Iterator[Array]:
        view = view_elements(array, start, shape, strides)
        width = tile.columns * max(1, AT_ONCE // (shape[-2] * tile.columns + 1))
        for which in np.ndindex(*shape[:-2]):
            for column in range(0, shape[-1], width):
                part = view[which][:, column : column + width]
                yield panels(pack(part) if pack else part, tile.columns)

    forms: dict[str, tuple[Callable[[Array], Array], int, int, DType]] = {
        "words": (quads, QUAD, QUAD, I32),
        "steps": (partial(quads, step=BYTE_STEP), BYTE_STEP, QUAD, I32),
        "nibbles": (nibbles, 2, 2, I8),
        "words of nibbles": (words_of_nibbles, 8, 8, I32),
        "halves": (words_of_halves, STEP, 2, I32),
    }
    pack, step, together, dtype = forms.get(form, (None, 1, 1, source.dtype))
    depth = -(-shape[-2] // step) * (step // together)
    size = -(-shape[-1] // tile.columns) * depth * tile.columns
    how = f"{f'{form} in ' if form else ''}panels of {tile.columns}: {start} {shape} {strides}"
    nbytes = math.prod(shape[:-2]) * size * dtype.size
    return Panels(Packed(source, how, make, nbytes, dtype), row_major([a for a, _ in kept]) * size)


def pack_at_run_time(
    element: Expr,
    batch: Sequence[Expr],
    k: Expr,
    n: Expr,
    tile: Tile,
    storage: Mapping[Value, Storage],
    owner: int,
) -> Panels | None:
    """Panels of a run-time operand, and the kernel that makes them; None when it has no plain strides."""
    buffers = Buffers(storage)
    offset = buffers.resolve(element).args[0]
    moving = [a for a in batch if _moves(offset, a)]
    depth, width = k.args[0], n.args[0]
    place = row_major(moving) * panel_size(tile, depth, width)
    matrices = product_of([a.args[0] for a in moving])
    to = Temporary("panels", owner, matrices * panel_size(tile, depth, width) * element.dtype.size)
    axes, (source, target) = join_axes(list(moving), [offset, place])
    walked = strided_operand(temporary(0, source, element.dtype), [k, n])
    if walked is None:
        return None
    number = add_buffer(buffers, to, written=True, dtype=element.dtype)
    kernel = PackKernel(
        buffers=tuple(buffers.list),
        tasks=matrices * tile.panels(width),
        flops=const(0),
        nbytes=matrices * depth * width * (2 * element.dtype.size),
        batch=tuple(axes),
        k=depth,
        n=width,
        source=walked,
        target=plain(number, target),
        tile=tile,
    )
    return Panels(to, place, kernel)


def _moves(offset: Expr, a: Expr) -> bool:
    parts = strides_along(offset, [a])
    return parts is None or as_int(parts[0][0]) != 0
