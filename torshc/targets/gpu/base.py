"""What targets of blocks of threads share: lowering to grids, and the printer of their templates."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ...base.features import Feature
from ...expr import F32, DType, Expr, as_int, product, walk
from ...expr.affine import contains, divisor_of
from ...expr.formulas import EXACT, Language
from ...graph import Graph, Value
from ...kernels.base import Buffer, Kernel, Operand, Packed, Store, text_fields
from ...kernels.halves import for_halves
from ...kernels.lower import idle_when_empty
from ...kernels.machine import Device, Machine
from ...kernels.nest import Accumulator
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import HostFiles, IndexPrinter, Rendered, Target, indented, render_kernel
from ..index import CTYPES, scalar
from .cuda.horizontal_fusion import fuse_horizontally, is_still
from .functions import function_texts, halves_header
from .grid import ThreadMapping
from .narrow_indices import INT_INDEX, NarrowIndices
from .nests import lower_grid
from .simt import Names, Packet, Statements, constant, decode, encode, register_type

_OVER_WARP = {"add": "sum", "mul": "prod", "or": "any", "and": "all"}


@dataclass(frozen=True)
class Words:
    """How a kernel language spells what all of them have.

    Attributes:
        shared: qualifier of memory that a block shares.
        barrier: statement at which the threads of a block wait for each other.
        pointer: qualifier of pointers to buffers, with a space behind it where there is one; None: no pointers.
        leave: statement behind a condition with which a thread ends.
        int: what begins the declaration of a counter.
        float: what begins the declaration of a float that stays as it is.
        unroll: line before a loop that is to be unrolled.
        near: whether its prelude has functions of a half's accuracy.
        packed: names of the types to which its prelude writes packets of floats.
        library: functions that it has, within 4 ULP, by their names without ``t_``; others are formulas.
        language: what formulas may be made of.
    """

    shared: str
    barrier: str
    pointer: str | None = ""
    leave: str = "return;"
    int: str = "int"
    float: str = "const float"
    unroll: str = "#pragma unroll\n"
    near: bool = False
    packed: frozenset[str] = frozenset()
    library: frozenset[str] = frozenset()
    language: Language = EXACT


class GridPrinter(IndexPrinter):
    """What a template of a device asks for the text of a kernel's expressions.

    Args:
        kernel: the kernel that is rendered.
        words: the language's words.
    """

    def __init__(self, kernel: Kernel, words: Words) -> None:
        super().__init__(kernel)
        self.words = words
        for e in walk(*kernel.expressions()):
            if e.op == "axis":
                self.axis(e)
        self.wide = self._large()
        self._narrow = NarrowIndices(kernel.expressions() if self.wide else ())
        self._called: dict[str, None] = {}
        self._early: dict[Expr, str] = {}  # what has been read before it is needed, by the register that holds it

    @property
    def called_functions(self) -> str:
        """The functions that the kernel calls and its language lacks; a body is printed before its head."""
        return "\n\n".join(function_texts(self._called, self.words.library, self.words.language))

    def _large(self) -> bool:
        sizes = (_elements(b) for b in self.kernel.buffers)
        work = as_int(self.kernel.tasks)
        return (
            bool(self.dim_names) or work is None or work > INT_INDEX or any(s is None or s > INT_INDEX for s in sizes)
        )

    @property
    def index(self) -> str:
        """Type of index variables."""
        return "int64_t" if self.wide else "int"

    def index_to(self, bound: Expr | int) -> str:
        """Type of an index variable that is no larger than a size, or than that and a tile."""
        known = bound if isinstance(bound, int) else as_int(bound)
        few = known <= INT_INDEX if known is not None else bound in self.kernel.counted
        return "int" if few else self.index

    def count(self, size: Expr) -> str:
        """A size as what :meth:`let_to` declares."""
        text = self.scalar(size)
        return self.narrow(text) if as_int(size) is None and self.index_to(size) == "int" else text

    @property
    def let(self) -> str:
        """What begins the declaration of an index."""
        return f"const {self.index}"

    def let_to(self, bound: Expr | int) -> str:
        """What begins the declaration of an index that is no larger than a size, or than that and a tile."""
        return f"const {self.index_to(bound)}"

    def var_to(self, bound: Expr | int) -> str:
        """What begins the declaration of an index that changes, no larger than a size, or than that and a tile."""
        return self.index_to(bound)

    def var_axis(self, axis: Expr) -> str:
        """What begins the declaration of an axis that a loop counts."""
        return self.index_of(axis)

    def lets_to(self, values: Sequence[tuple[str, str, Expr | int]]) -> str:
        """Declarations of several indices: the name, the text and what it is no larger than of each."""
        kinds = dict.fromkeys(self.let_to(bound) for _, _, bound in values)
        return "\n    ".join(
            f"{kind} {', '.join(f'{name} = {text}' for name, text, bound in values if self.let_to(bound) == kind)};"
            for kind in kinds
        )

    def index_of(self, axis: Expr) -> str:
        """Type of a variable that an axis is kept in."""
        return "int" if axis in self._narrow.axes else self.index

    def let_axis(self, axis: Expr) -> str:
        """What begins the declaration of an axis."""
        return f"const {self.index_of(axis)}"

    @property
    def var(self) -> str:
        """What begins the declaration of an index that changes."""
        return self.index

    def lets(self, **values: str) -> str:
        """Declarations of several indices."""
        return f"{self.let} {', '.join(f'{name} = {text}' for name, text in values.items())};"

    def ints(self, **values: str) -> str:
        """Declarations of several numbers of threads, units or rows of a block."""
        return f"const int {', '.join(f'{name} = {text}' for name, text in values.items())};"

    def narrow(self, text: str) -> str:
        """An index that counts parts of a launch, of which there are fewer than 2^31: it is divided in less time."""
        narrow = f"(int){text}" if text.isidentifier() else f"(int)({text})"
        return narrow if self.wide else text

    def unravel(
        self, axes: Sequence[Expr], var: str, among: object = None, bound: Expr | int | None = None
    ) -> list[tuple[str, str, str]]:
        """Declarations of the axes of loops from one running number: what begins each, its name and its value.

        Of a 64-bit number the last axes are taken off as one 32-bit number, which is divided in less time, where that
        saves a division.

        Args:
            var: the number.
            among: parts of the kernel; axes that no expression in these reads are left out. None: none is.
            bound: a size that the number is no larger than, where it is not any.
        """
        read = tuple(axes) if among is None else self.axes_in(axes, among)
        axes, cyclic = _from_first(axes, read)
        wide = self.wide and (bound is None or self.index_to(bound) != "int")
        plain = self._unravel(axes, var, read, cyclic, self.var if wide or not self.wide else "int")
        inner = self._inner_axes(axes) if wide else ()
        divisions = sum(kind == "" or " / " in text or " % " in text for kind, _, text in plain)
        if not inner or len(inner) == len(axes) or divisions < 2:
            return plain
        size, outer = self.points(inner), axes[: -len(inner)]
        one_outer, one_inner = len(outer) == 1 and not cyclic, len(inner) == 1
        above = self.axis(outer[0]) if one_outer else f"{var}_outer"
        below = self.axis(inner[0]) if one_inner else f"{var}_inner"
        found = [(self.let, above, f"{var} / {size}")]
        if any(a in read for a in inner):
            found.append(("const int", below, f"(int)({var} - {size} * {above})"))
        found += [] if one_outer else self._unravel(outer, above, read, cyclic, self.var)
        inner, cyclic = _from_first(inner, read)
        return found + ([] if one_inner else self._unravel(inner, below, read, cyclic, "int"))

    def _inner_axes(self, axes: Sequence[Expr]) -> Sequence[Expr]:
        """The last axes, as many as a 32-bit number counts the points of."""
        count = 0
        while count < len(axes) and axes[-count - 1] in self._narrow.axes:
            size = as_int(product([a.args[0] for a in axes[-count - 1 :]]))
            if size is None or not 0 < size <= INT_INDEX:
                break
            count += 1
        return axes[len(axes) - count :]

    def _unravel(
        self, axes: Sequence[Expr], var: str, read: Sequence[Expr], cyclic: bool, kind: str
    ) -> list[tuple[str, str, str]]:
        """Declarations of axes by one division after another; `cyclic` numbers count further axes, and start again."""
        found: list[tuple[str, str, str]] = []
        left, rest = var, f"{var}_rest"
        for k, a in reversed([*enumerate(axes)]):
            if a in read:
                found.append((self.let_axis(a), self.axis(a), f"{left} % {self.factor(a)}" if cyclic or k else left))
            if k:
                found.append((kind, rest, f"{left} / {self.factor(a)}") if left == var else ("", rest, self.factor(a)))
                left = rest
        return found

    def beyond(self, start: str, way: Expr) -> str:
        """An index some way behind another; where indices have 64 bits, the way is added up in 32 if it fits."""
        text = self.plus(way)
        return f"{start} + ({text})" if self.wide and (" + " in text or " - " in text) else self.plus(start, text)

    def wide_index(self, text: str, bound: Expr | int | None = None) -> str:
        """A number counted in 32 bits as an operand of index arithmetic, whose result is no larger than a size."""
        text = text if text.isidentifier() else f"({text})"
        return f"(int64_t){text}" if self.wide and (bound is None or self.index_to(bound) != "int") else text

    def floats(self, *names: str) -> str:
        """Declarations of several floats that change, which are 0."""
        return f"float {', '.join(f'{name} = 0.0f' for name in names)};"

    def array(self, name: str, *sizes: int, dtype: DType = F32) -> str:
        """Declaration of an array of a thread's numbers, which are 0."""
        return f"{register_type(dtype)} {name}{''.join(f'[{n}]' for n in sizes)} = {{}};"

    def shares(self, name: str, *sizes: int) -> str:
        """Declaration of an array of floats that the block shares."""
        return f"{self.words.shared} float {name}{''.join(f'[{n}]' for n in sizes)};"

    def choose(self, test: str, a: str, b: str) -> str:
        """One text where a condition holds, else the other."""
        return f"{test} ? {a} : {b}"

    def least(self, a: str, b: str) -> str:
        """The smaller of two indices."""
        return f"t_imin({a}, {b})"

    def most(self, a: str, b: str) -> str:
        """The larger of two indices."""
        return f"t_imax({a}, {b})"

    def stays(self, dtype: DType) -> str:
        """What begins the declaration of a register that stays as it is."""
        return f"const {register_type(dtype)}"

    def varies(self, dtype: DType) -> str:
        """What begins the declaration of a register that changes."""
        return register_type(dtype)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Type and name of each buffer."""
        return [
            (("" if b.written else "const ") + CTYPES[b.dtype.name], f"b{k}") for k, b in enumerate(self.kernel.buffers)
        ]

    @property
    def fixed(self) -> list[int]:
        """Numbers of buffers that no kernel writes, so that what is read of them may be kept."""
        operands = enumerate(b.operand for b in self.kernel.buffers)
        return [k for k, x in operands if isinstance(x, Packed) or (isinstance(x, Value) and x.const is not None)]

    def type(self, dtype: DType) -> str:
        return register_type(dtype)

    def block(
        self,
        stores: Iterable[Store],
        accs: Mapping[str, str] | None = None,
        packet: Expr | None = None,
        size: int = 1,
        indent: int = 4,
        prefix: str = "v",
        guard: str = "",
    ) -> str:
        """Statements of stores for one element, or for `size` of them from the axis `packet` on.

        What is stored is computed anyway; with a `guard` it is stored where that holds.
        """
        where = f"if ({guard}) " if guard else ""
        whole = Packet(packet, size) if packet is not None and size > 1 else None
        s = self._statements(accs, prefix, whole)
        stores = [replace(x, value=_unrounded(x.value, self._dtype(x))) for x in self._near(list(stores))]
        s.expect(*(x.value for x in stores), places=[x.offset for x in stores])
        s.load_packets(*(x.value for x in stores))
        out: dict[Store, tuple[str, str]] = {}  # the array of a packet, and its type where that is of floats
        with s.apart() as each:
            values = [s.hold(x.value) if len(stores) > 1 else s.emit(x.value) for x in stores]
            for k, (x, value) in enumerate(zip(stores, values, strict=True)):
                if whole is not None and whole.steps(x.offset):
                    dtype = self._dtype(x)
                    packed = dtype.name if x.value.dtype is F32 and dtype.name in self.words.packed else ""
                    out[x] = f"q{k}", packed
                    each.append(f"q{k}[j] = {value if packed else encode(value, dtype, self._called)};")
                else:
                    s.store(x, value)
                    s.lines[-1] = where + s.lines[-1]
        s.lines.extend(
            f"{'float' if packed else CTYPES[self._dtype(x).name]} {name}[{size}];" for x, (name, packed) in out.items()
        )
        s.lines.extend(self._over(whole, each))
        for x, (name, packed) in out.items():
            write = f"t_write{size}_{packed}" if packed else f"t_write{size}"
            s.lines.append(f"{where}{write}(b{x.buffer} + {s.index(x.offset)}, {name});")
        return indented(s.lines, indent)

    def read_early(
        self, stores: Iterable[Store], stages: Iterable[Any], packet: Expr | None = None, size: int = 1
    ) -> str:
        """Statements that read what the stores at the end of a row need beside its sums, so that both come together.

        Whatever is printed later finds it there. What only some points read is not among it.

        Args:
            stages: those of the row, whose results the stores may need.
            packet, size: as of :meth:`block`.
        """
        whole = Packet(packet, size) if packet is not None and size > 1 else None
        s = self._statements({}, "e", whole)
        roots = [*(x.value for x in stores), *(a.result for stage in stages for a in stage.accumulators)]
        found = [x for x, choices in s.find_loads(roots).items() if not choices and not _holds_data(x.args[0])]
        s.expect(places=[x.args[0] for x in found])
        for k, e in enumerate(found):
            assert isinstance(e.data, int)
            name, kind, place = f"early{k}", CTYPES[self.kernel.buffers[e.data].dtype.name], s.index(e.args[0])
            if whole is None or not contains(e.args[0], whole.axis):
                s.lines.append(f"const {kind} {name} = b{e.data}[{place}];")
                self._early[e] = name
            elif whole.steps(e.args[0]):
                s.lines.extend([f"{kind} {name}[{size}];", f"t_read{size}({name}, b{e.data} + {place});"])
                self._early[e] = f"{name}[{whole.element}]"
        return indented(s.lines, 4)

    def _dtype(self, store: Store) -> DType:
        return self.kernel.buffers[store.buffer].dtype

    def ahead(self, stores: Iterable[Store], rows: Sequence[Expr], packet: Expr, size: int, count: str) -> str:
        """Statements that bring to the second cache what stores read of a row, but for what all rows read.

        Args:
            rows: axes of a row.
            packet: the axis along it, from a multiple of `size` on.
            count: elements.
        """
        s = self._statements({}, "ahead", Packet(packet, size))
        assert s.packet is not None
        for e, choices in s.find_loads([x.value for x in stores]).items():
            (place,) = e.args
            if not choices and s.packet.steps(place) and any(contains(place, a) for a in rows):
                assert isinstance(e.data, int)
                element = self.kernel.buffers[e.data].dtype.size
                s.lines.append(f"t_prefetch(b{e.data} + {s.index(place)}, {count} * {element});")
        return indented(s.lines, 8)

    def accumulate(
        self,
        stage: Any,
        accs: Mapping[str, str],
        packet: Expr | None = None,
        size: int = 1,
        indent: int = 8,
        each: str = "",
    ) -> str:
        """Statements that add one element, or a packet of them, to the accumulators of a stage.

        With `each`, "[j]", an element of the packet has accumulators of its own.
        """
        whole = Packet(packet, size) if packet is not None and size > 1 else None
        s = self._statements(accs, "v", whole)
        values = [*(a.term for a in stage.accumulators), *(k.value for k in stage.keeps)]
        s.expect(*values)
        s.load_packets(*values)
        with s.apart() as lines:
            for keep in stage.keeps:
                value = s.emit(keep.value)
                lines.append(f"{s.kept(f'row{keep.slot}')} = {value};")
            for a in stage.accumulators:
                term, total = s.emit(a.term), f"a{a.name}{each}"
                lines.append(f"{total} = {self.join(a, total, term)};")
        s.lines.extend(self._over(whole, lines))
        return indented(s.lines, indent)

    def condition(self, e: Expr) -> str:
        """A condition on axes and dimensions as text."""
        return scalar(e, self._axes, self.dim_names, self.kernel.buffers)

    def decoded(self, buffer: int, text: str) -> str:
        """An element of a buffer, which is in a register as it is in memory, as a number."""
        return decode(text, self.kernel.buffers[buffer].dtype, self._called)

    def whole(self, axes: Sequence[Expr], size: int) -> bool:
        """Whether running numbers over some axes come in whole packets along the last."""
        known = divisor_of(axes[-1].args[0]) if axes else 0
        return known > 0 and known % size == 0

    def value(self, e: Expr, accs: Mapping[str, str], name: str, indent: int = 4) -> str:
        """Statements that define register `name` as an expression."""
        s = self._statements(accs, f"{name}_", None)
        s.expect(e)
        s.named[e] = name
        s.emit(e)
        return indented(s.lines, indent)

    def values(self, e: Expr, accs: Mapping[str, str], name: str, packet: Expr, size: int, whole: bool = False) -> str:
        """Statements that define registers `name` as an expression for each point of a packet.

        Args:
            whole: whether the packet begins at a multiple of its size, so that neighbours may be read at once.
        """
        kind, s = register_type(e.dtype), self._statements(accs, f"{name}_", Packet(packet, size))
        s.expect(e)
        if whole:
            s.load_packets(e)
        with s.apart() as each:
            each.append(f"{name}[j] = {s.emit(e)};")
        s.lines.extend(self._over(s.packet, each))
        return indented([f"{kind} {name}[{size}];", *s.lines], 4)

    def identity(self, a: Accumulator) -> str:
        """What an accumulation starts from."""
        return constant(a.start, a.term.dtype)

    def warp(self, a: Accumulator) -> str:
        """Name of the function that combines the values of a warp, after ``t_warp_``."""
        return f"{_OVER_WARP.get(a.how, a.how)}_{a.term.dtype.compute}"

    def _near(self, stores: list[Store]) -> list[Store]:
        """Stores of halves by functions that are as accurate as these, where the language has them."""
        if not self.words.near:
            return stores
        values = for_halves([x.value for x in stores], [self.kernel.buffers[x.buffer].dtype for x in stores])
        return [replace(x, value=value) for x, value in zip(stores, values, strict=True)]

    def _over(self, whole: Packet | None, lines: list[str]) -> list[str]:
        """Statements for each element of a packet."""
        if whole is None or not lines:
            return lines
        return ["#pragma unroll", f"for (int j = 0; j < {whole.size}; j++) {{", *lines, "}"]

    def _statements(self, accs: Mapping[str, str] | None, prefix: str, whole: Packet | None) -> Statements:
        wide = {a: t if self.wide and a not in self._narrow.axes else f"(int64_t){t}" for a, t in self._axes.items()}
        names = Names(self._axes, self.dim_names, accs or {}, self.kernel.buffers, wide, self._narrow)
        step = "0" if getattr(self.kernel, "steps", None) == 1 else "step"
        return Statements(names, prefix, whole, self.words.library, self._called, step, self._early)


def _holds_data(e: Expr) -> bool:
    """Whether an index depends on what was read or accumulated."""
    return any(x.op in ("load", "acc") for x in walk(e))


def _from_first(axes: Sequence[Expr], read: Sequence[Expr]) -> tuple[Sequence[Expr], bool]:
    """Axes from the first that is read on, and whether there are some before them."""
    first = next((k for k, a in enumerate(axes) if a in read), len(axes))
    return axes[first:], first > 0


def _unrounded(e: Expr, dtype: DType) -> Expr:
    """What is stored of a value: writing it rounds it as it has been rounded to the same type before."""
    return e.args[0] if e.op == f"as_{dtype.name}" else e


def _elements(b: Buffer) -> int | None:
    """Elements of a buffer, None where known only at run time; at most, for what a kernel leaves for another."""
    if isinstance(b.operand, Value):
        return as_int(b.operand.type.size)
    size = b.operand.nbytes
    return size if isinstance(size, int) else as_int(size)


# What all libraries for devices share; a target adds its device layer.
HOST = HostFiles(
    search=("gpu", "c"),
    sources=(
        "t_gpu_host.c",
        "t_gpu_steps.c",
        "t_model.c",
        "t_open.c",
        "t_exchange.c",
        "t_observe.c",
        "t_check.c",
        "t_cpu.c",
        "t_pool.c",
    ),
    headers=("model.h", "t_program.h", "t_model.h", "t_gpu_model.h", "t_device.h", "t_pool.h"),
)


class GridTarget(Target):
    """A device of blocks of threads.

    Class attributes:
        words: its language's words.
    """

    words: ClassVar[Words]
    alignment: ClassVar[int] = 16  # of packets
    features = frozenset({Feature.ATTENTION, Feature.HALF_PRODUCTS, Feature.ROTARY_POSITIONS})

    @classmethod
    def capabilities(cls, archs: Sequence[str]) -> Device:
        """What the devices of these architectures have in common."""
        return Device()

    def __init__(self, machine: Machine) -> None:
        super().__init__(replace(machine, device=self.capabilities(machine.archs)))

    def _with(self, machine: Machine) -> Self:
        """The same target on another machine."""
        other = copy(self)
        other.machine = machine
        return other

    def on_processor(self) -> Target:
        """As :meth:`torshc.targets.base.Target.on_processor`, with plain sums."""
        return super(GridTarget, self._with(replace(self.machine, slack=None))).on_processor()

    def header_texts(self) -> dict[str, str]:
        texts = super().header_texts()
        return {**texts, "t_halves.h": halves_header(self.words.library, self.words.language)} if texts else {}

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        if graph.loose and self.machine.by_size:  # runs take the loose form seldom
            return self._with(replace(self.machine, by_size=False)).lower(graph, group, storage)
        kernels, count = super().lower(graph, group, storage), len(group.outputs)
        still = [k for k in kernels if is_still(k)]
        if self.horizontal_fusion and group.kind == "nest" and len(still) > 1:
            return [*(k for k in kernels if not is_still(k)), fuse_horizontally(still)]
        many = self.max_buffers and any(len(k.buffers) > self.max_buffers for k in kernels)
        if not many or group.kind != "nest" or count < 2:
            return kernels
        halves = group.outputs[: count // 2], group.outputs[count // 2 :]
        return [k for part in halves for k in GridTarget.lower(self, graph, replace(group, outputs=part), storage)]

    def render(self, kernel: Kernel) -> Rendered:
        printer = GridPrinter(kernel, self.words)
        return render_kernel(self.search, kernel.template, printer, self.name, w=self.words, T=self.threads(kernel))

    def text_key(self, kernel: Kernel) -> Hashable:
        """The kernel, and of its operands what templates ask for: which are one, which are weights, and their sizes."""
        first: dict[Operand, int] = {}
        buffers = tuple(
            (first.setdefault(b.operand, k), b.dtype, b.written, b.start, b.length, b.constant, _elements(b))
            for k, b in enumerate(kernel.buffers)
        )
        return (type(kernel), buffers, *(getattr(kernel, name) for name in text_fields(kernel)))

    def threads(self, kernel: Kernel) -> int:
        threads: int = getattr(kernel, "threads", 0)
        return threads


@GridTarget.lowers("nest")
def lower_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a group without a heavy node."""
    return [idle_when_empty(k) for k in lower_grid(group, storage, machine.device, ThreadMapping.of(machine))]
