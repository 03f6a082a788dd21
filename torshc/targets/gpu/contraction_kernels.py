"""The kernels of products tile by tile: through registers, and on tensor cores of a warp or of a group of four."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...expr import DType, Expr, as_int, ceil_div, product
from ...expr.affine import divisor_of
from ...kernels.base import Store
from ...kernels.heavy import HeavyKernel
from .contraction_choice import EXACT, GROUP_EXACT, MORE_PIECES
from .contraction_factor import Factor, Matrices, as_matrices
from .contraction_tiles import AnyTile, GroupTile, RoundedGroupTile, Tf32GroupTile, Tf32Tile
from .cuda.contraction_images import Images, as_images

ROW_BYTES = 128  # of results from which on a card has no memory for 2^31 rows


@dataclass(frozen=True)
class ContractionKernel(HeavyKernel):
    """sum over k of a[batch, m, k] * b[batch, k, n], tile by tile through shared memory, and what follows from it.

    Attributes:
        batch, m, n: axes of the epilogue; rows and columns are running numbers over m and n, as over the factors' axes.
        taps, depth: axes of the sum, the innermost apart.
        flat: whether a tile runs on from one tap into the next.
        a, b: the factors.
        dtype: what products are summed in.
        tile: what a block and a thread compute.
        part: axis of the pieces that the sums are cut into.
        threads: threads of a block.
    """

    kind: ClassVar[str] = "contraction"
    template: ClassVar[str] = "contraction.j2"

    batch: tuple[Expr, ...]
    m: tuple[Expr, ...]
    n: tuple[Expr, ...]
    taps: tuple[Expr, ...]
    depth: Expr
    flat: bool
    a: Factor
    b: Factor
    dtype: DType
    tile: AnyTile
    part: Expr
    threads: int

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        return [(self.stores, {self.a.buffer, self.b.buffer})]

    @property
    def loaders(self) -> int:
        """Threads that bring the factors to shared memory."""
        return self.threads

    @property
    def shared(self) -> int:
        return self.tile.shared(self.dtype.size)

    @property
    def rows(self) -> Expr:
        return product([x.args[0] for x in self.m])

    @property
    def columns(self) -> Expr:
        return product([x.args[0] for x in self.n])

    @property
    def length(self) -> Expr:
        """Terms of a sum that are walked in one go: all of them, or those of one tap."""
        return product([x.args[0] for x in (*self.taps, self.depth)]) if self.flat else self.depth.args[0]

    @property
    def chunks(self) -> Expr:
        """Tiles along `length`."""
        return ceil_div(self.length, self.tile.k)

    @property
    def steps(self) -> Expr:
        """Tiles along the whole sum."""
        return self.chunks if self.flat else self.chunks * product([x.args[0] for x in self.taps])

    @property
    def places(self) -> Expr:
        """Terms of the whole sum, with those that fill its tiles; pieces of sums multiply the number of tiles."""
        return self.steps * max(self.tile.k, *MORE_PIECES)


@dataclass(frozen=True)
class MmaKernel(ContractionKernel):
    """The same on tensor cores, of factors that are both f16 or both bf16 in memory."""

    template: ClassVar[str] = "contraction_mma.j2"

    @property
    def operand(self) -> str:
        """Element type of the factors."""
        return self.buffers[self.a.buffer].dtype.name

    @property
    def approximation(self) -> str:
        """What makes results differ from the plain sum by more than its own rounding."""
        single = isinstance(self.tile, Tf32Tile | Tf32GroupTile) and self.tile.products == 1
        return "tf32 factors" if single or isinstance(self.tile, RoundedGroupTile) else ""

    @property
    def roundings(self) -> int:
        """Terms of the plain sum whose error that of three products of tf32 has, where there are fewer; else 0."""
        if not isinstance(self.tile, Tf32Tile | Tf32GroupTile) or self.tile.products == 1:
            return 0
        terms = as_int(product([x.args[0] for x in (*self.taps, self.depth)]))
        exact = GROUP_EXACT if isinstance(self.tile, GroupTile) else EXACT
        return exact if terms is not None and terms < exact else 0


@dataclass(frozen=True)
class Tf32Kernel(MmaKernel):
    """The same of f32 factors: of tf32, which they are rounded to, or whose sums they are.

    With a = a_high + a_low and b alike, a_high b_high + a_high b_low + a_low b_high leaves 2^-22 of a product. Tensor
    cores round sums toward zero, so they add up 8 terms at a time, which the plain units add to the rest. The error is
    that of f32's own sums from 64 terms on, and of fewer that of 64. Results that two tf32 cannot make are computed
    again in f32: those with infinite or NaN factors, factors that round to infinity, and results below 2^-80, whose
    factors may have lost bits (what is below 2^-137 counts as 0).
    """


@dataclass(frozen=True)
class GroupMmaKernel(MmaKernel):
    """The same by groups of four warps, whose products read both factors from shared memory (Hopper's wgmma).

    Four warps bring tiles to shared memory, or ask the card for whole ones, and the others multiply them. A block takes
    tile after tile, so that the next arrive while results are written. Of f32 it is as in :class:`Tf32Kernel`, but for
    the terms that tensor cores add up: 32, so that the error is that of f32's sums from 96 terms on.
    """

    template: ClassVar[str] = "contraction_group.j2"

    @property
    def whole(self) -> bool:
        """Whether no tile of results reaches beyond the last row or column."""
        return _divides(self.tile.m, self.rows) and self.whole_columns

    @property
    def whole_columns(self) -> bool:
        """Whether none reaches beyond the last column."""
        return _divides(self.tile.n, self.columns)

    @property
    def counted(self) -> frozenset[Expr]:
        """The number of rows, of which there are fewer than 2^31 where each of their results has 128 bytes or more.

        A Hopper card has at most 144 GB; its copies of tiles count rows in 32 bits, too.
        """
        columns = as_int(self.columns)
        row = (columns or 0) * min((self.buffers[s.buffer].dtype.size for s in self.stores), default=0)
        return frozenset((self.rows,)) if row >= ROW_BYTES else frozenset()

    @property
    def loaders(self) -> int:
        assert isinstance(self.tile, GroupTile)
        return self.tile.loaders

    @property
    def is_served(self) -> bool:
        """Whether tiles can be brought: by the card, or by threads in packets that they share evenly.

        Factors of tf32 lie both along the sum, or both across it.
        """
        assert isinstance(self.tile, GroupTile)
        packet = self.tile.packet
        if isinstance(self.tile, Tf32GroupTile) and self.a.along_k != self.b.along_k:
            return False
        if isinstance(self.tile, RoundedGroupTile) and not (self.a.along_k and self.b.along_k):
            return False
        return all(
            name in self.copied or (f.packet == packet and (f.along_k or self.loaders % (size // packet) == 0))
            for name, f, size in (("a", self.a, self.tile.m), ("b", self.b, self.tile.n))
        )

    def lines(self, factor: Matrices | Images, size: int) -> int:
        """Lines along the sum that a copy brings of a tile of `size`: no more than there are, as zeros take time too.

        What else is in a tile makes results that nobody wants; of floats these would be looked at.
        """
        if isinstance(factor, Images) or isinstance(self.tile, Tf32GroupTile):
            return size
        return min(size, as_int(factor.outer) or size)

    @property
    def copied(self) -> dict[str, Matrices | Images]:
        """The factors of which the card copies whole tiles, by the names that the template gives them."""
        assert isinstance(self.tile, GroupTile)
        k, tile, found = (*self.taps, self.depth), self.tile, dict[str, Matrices | Images]()
        for name, f in (("a", self.a), ("b", self.b)):
            made: Matrices | Images | None = as_matrices(f, self.batch, k, tile.k, tile.packet)
            if made is None and not self.flat:
                made = as_images(f, self.batch, k, tile.packet)
            if made is not None:
                found[name] = made
        return found


def _divides(size: int, total: Expr) -> bool:
    """Whether a number, of which a run may know more, is surely a multiple of a size."""
    return divisor_of(total) % size == 0
