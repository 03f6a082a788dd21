"""What a target is: which kernels it lowers groups to, how it spells them, and what its libraries are made of."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import jinja2

from ..base import resources
from ..base.errors import ConfigError, InternalError, did_you_mean
from ..base.features import Features
from ..base.options import OF_SOME_TARGETS, PRECISIONS, CompileOptions
from ..expr import Expr, as_int, dim, dims_of, product, walk
from ..graph import Graph, Value
from ..kernels.base import Kernel, expressions_in
from ..kernels.base import NoKernel as NoKernel
from ..kernels.lower import expanded, idle_when_empty
from ..kernels.machine import Choice, Machine
from ..kernels.nest import Accumulator
from ..kernels.starts import with_starts
from ..plan.group import Group
from ..plan.storage import Storage
from .byte_code import ByteCode
from .counter import Counter, counter_of
from .families import families, load_families, load_family, load_family_of
from .index import CTYPES, OPERATORS, given_sizes, in_brackets, scalar
from .isa import kernel_prefix
from .parameters import Parameter, parameters_of
from .size_names import DimNames, with_names
from .tidy import tidy
from .toolchain import Toolchain

PLACEHOLDER = "KERNEL_NAME"
SUBGROUPS = "subgroups"  # names the form of a kernel for devices of WebGPU that have them


@dataclass(frozen=True)
class Rendered:
    """A kernel as text, with marks in place of the names of sizes (:mod:`.size_names`).

    Attributes:
        symbol: its external name, made from its text, so that equal kernels are one.
        text: its source.
        dims: the sizes that it wants in ``dim``, in order: symbolic dimensions, and long sizes.
        forms: other texts of it, of which the host takes one where the device has more, by what that is.
    """

    symbol: str
    text: str
    dims: tuple[Expr, ...]
    forms: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def source(self) -> str:
        """Its source with names of its own for sizes."""
        return with_names(self.text)

    def files(self, suffix: str) -> dict[str, str]:
        """Its texts by the names of their files, which end in `suffix`."""
        forms = {f"{self.symbol}.{form}{suffix}": text for form, text in self.forms.items()}
        return {self.symbol + suffix: self.text, **forms}


Lowering = Callable[[Group, Mapping[Value, Storage], Machine], list[Kernel]]
NEST = "nest"  # the family of groups without a heavy node


@dataclass(frozen=True)
class HostFiles:
    """What a target's libraries have beside host.c and their kernels.

    Attributes:
        search: folders of ``templates/`` in which a file is looked for, in order.
        sources: names of the sources.
        headers: names of what they include.
        ranks: names of the sources of libraries that are one rank of several, and of what these include.
        choice: names of the sources of libraries whose device takes forms by what is in its memory, and of what these
            include; none where the processor alone looks at values.
        launchers: whether a kernel for a device is a C function that launches it, or is found by its name alone.
    """

    search: tuple[str, ...]
    sources: tuple[str, ...]
    headers: tuple[str, ...]
    launchers: bool = True
    ranks: tuple[tuple[str, ...], tuple[str, ...]] = (("t_ranks.c", "t_local.c"), ("t_ranks.h",))
    choice: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def text(self, name: str) -> str:
        """The first file of this name."""
        return resources.find_template(self.search, name).read_text()


class Target(ABC):
    """A kind of machine to compile for.

    Class attributes:
        name: what ``--target`` calls it.
        title: what it is, in a few words.
        suffix: ending of its kernels' sources.
        device: DLPack's code of where its tensors lie: 1 processor, 2 CUDA, 8 Metal.
        guards: whether runs look at values of inputs, where there are variants for some.
        toolchain: what builds its libraries.
        search: folders of ``templates/`` in which its files are looked for, in order.
        preludes: folders of ``templates/`` of which the kernels may include all headers in ``prelude/``.
        host: what its libraries have beside their kernels.
        in_process: whether models need no bundle, as they are compiled where they run.
        alignment: bytes at whose multiples, and at those of an element, begins what kernels get.
        explicit_bindings: whether a kernel's arguments are ranges of memory, of known sizes, that must not overlap.
        max_buffers: most buffers that a kernel may have; 0 for any number.
        horizontal_fusion: whether small kernels that do not need each other are one launch.
        shared_rows: whether reductions over the rows of one value are one kernel, though neither needs the other, and
            who looks for the places of maxima shares one with who computes these.
        states: how many states a product's kernel may update at most, in a training step; None for any number.
        browser: whether browsers run its kernels.
        options: those of :data:`torshc.base.options.OF_SOME_TARGETS` that it uses.
        precisions: values of CompileOptions.precision that it has.
        step_precisions: those of training steps.
        tunable: whether its kernels can be tuned, as its templates state parameters.
        features: what it has kernels for that not all targets have, see :class:`torshc.base.features.Feature`.

    Args:
        machine: the processor that is compiled for.
    """

    _lowerings: ClassVar[dict[str, Lowering]] = {}
    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str] = ".c"
    device: ClassVar[int] = 1
    guards: ClassVar[bool] = True
    toolchain: ClassVar[Toolchain]
    search: ClassVar[tuple[str, ...]] = ("c",)
    preludes: ClassVar[tuple[str, ...]] = ("c",)
    host: ClassVar[HostFiles]
    in_process: ClassVar[bool] = False
    alignment: ClassVar[int] = 1
    explicit_bindings: ClassVar[bool] = False
    max_buffers: ClassVar[int] = 0
    horizontal_fusion: ClassVar[bool] = False
    shared_rows: ClassVar[bool] = False
    states: ClassVar[int | None] = None
    browser: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset({"mcpu"})
    precisions: ClassVar[frozenset[str]] = frozenset(PRECISIONS) - {"tf32"}
    step_precisions: ClassVar[frozenset[str]] = frozenset({"f32"})
    tunable: ClassVar[bool] = False
    features: ClassVar[Features] = frozenset()

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __init_subclass__(cls) -> None:
        cls._lowerings = {}
        if unknown := cls.options - OF_SOME_TARGETS:
            raise InternalError(f"{cls.__name__} uses {', '.join(sorted(unknown))}: not an option of some targets")

    @classmethod
    def features_on(cls, archs: Sequence[str], extras: Sequence[str] = ()) -> Features:
        """Its features where code is for all of these architectures, and a processor with these instruction sets."""
        return cls.features

    def on_processor(self) -> Target:
        """The target for the processor of the same machine, which computes what this one has no kernels for."""
        return find_target("c")(self.machine)

    @classmethod
    def lowers(cls, *families: str) -> Callable[[Lowering], Lowering]:
        """Decorator: how groups whose anchor is of these families become kernels, here and in subclasses.

        A lowering that serves some groups of a family better belongs in a call of the one that is there.
        """

        def register(lowering: Lowering) -> Lowering:
            if twice := cls._lowerings.keys() & set(families):
                raise InternalError(f"{cls.__name__} already has a lowering of {', '.join(sorted(twice))}")
            cls._lowerings |= dict.fromkeys(families, lowering)
            return lowering

        return register

    @classmethod
    def lowering(cls, family: str) -> Lowering | None:
        """The lowering of a family, its own or inherited."""
        load_family_of(cls.__module__)
        tables = (c._lowerings for c in cls.__mro__ if issubclass(c, Target))
        return next((table[family] for table in tables if family in table), None)

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        """The kernels of a group, in launch order.

        Raises:
            NoKernel: when this target cannot compute the group.
            UnsupportedError: when no target can.
        """
        group = expanded(graph, group)
        family = NEST if group.anchor is None else group.anchor.op.family
        if (lowering := self.lowering(family)) is None:
            raise NoKernel(f"{self.name} has no kernel of family {family}")
        kernels = [with_starts(k, self.alignment) for k in lowering(group, storage, self.machine)]
        return kernels if group.anchor is None else [idle_when_empty(k) for k in kernels]

    @abstractmethod
    def render(self, kernel: Kernel) -> Rendered:
        """The source of a kernel."""

    def text_key(self, kernel: Kernel) -> Hashable:
        """What a kernel's text follows from: kernels of equal keys are rendered once; None where that is not known."""
        return None

    def parameters(self, kernel: Kernel) -> tuple[Parameter, ...]:
        """What may be chosen of a kernel."""
        return parameters_of(self.search, kernel.template, self.machine.lanes) if self.tunable else ()

    def with_choices(self, choices: tuple[tuple[str, Choice], ...]) -> Target:
        """The target with values of parameters in place of those that its lowerings choose."""
        return type(self)(dataclasses.replace(self.machine, choices=choices))

    def with_slack(self, slack: int | None) -> Target:
        """The target with kernels that may take fewer products, see :class:`torshc.kernels.machine.Machine`."""
        return type(self)(dataclasses.replace(self.machine, slack=slack))

    def threads(self, kernel: Kernel) -> int:
        """Threads of a block, on a device of blocks; 0 on a processor, where the caller cuts tasks as it likes."""
        return 0

    @classmethod
    def openings(cls) -> tuple[str, ...]:
        """What kernels of C++ begin with that may be compiled with others that begin so (`bundle/units.py`)."""
        return ()

    def header_texts(self) -> dict[str, str]:
        """What kernels include, by file name."""
        folders = (resources.templates(name) / "prelude" for name in self.preludes)
        return {file.name: file.read_text() for folder in folders for file in sorted(folder.glob("*.h"))}


TARGETS: dict[str, type[Target]] = {}
T = TypeVar("T", bound=type[Target])


def register(cls: T) -> T:
    """Class decorator: make a target known by its name."""
    TARGETS[cls.name] = cls
    return cls


def find_target(name: str) -> type[Target]:
    """The target of a name.

    Raises:
        ConfigError: there is none.
    """
    for family in families():
        load_family(family)
        if name in TARGETS:
            return TARGETS[name]
    known = sorted(TARGETS)
    raise ConfigError(f"no target {name!r}{did_you_mean(name, known)}", f"one of {', '.join(known)}")


def target_of(options: CompileOptions) -> type[Target]:
    """The target that options name, which has to use each of them that was given.

    Raises:
        ConfigError: there is no such target, or one of the options is for other targets.
    """
    target = find_target(options.target)
    defaults = {f.name: f.default for f in dataclasses.fields(options)}
    unused = [n for n in sorted(OF_SOME_TARGETS - target.options) if getattr(options, n) != defaults[n]]
    if unused:
        load_families()
        uses = (f"{_flag(n)}: {', '.join(sorted(t.name for t in TARGETS.values() if n in t.options))}" for n in unused)
        raise ConfigError(
            f"the target {target.name} does not use {' and '.join(map(_flag, unused))}",
            f"leave it out, or choose a target that uses it ({'; '.join(uses)})",
        )
    if options.precision not in target.precisions:
        load_families()
        known = ", ".join(name for name, t in sorted(TARGETS.items()) if options.precision in t.precisions)
        raise ConfigError(
            f"the target {target.name} has no --precision {options.precision}", f"it goes with --target {known}"
        )
    if options.train is not None and options.precision not in target.step_precisions:
        load_families()
        known = ", ".join(name for name, t in sorted(TARGETS.items()) if options.precision in t.step_precisions)
        raise ConfigError(
            f"--train with --precision {options.precision}: steps of the target {target.name} compute in "
            + ", ".join(sorted(target.step_precisions)),
            f"leave it out, or compile for --target {known}" if known else "choose one of these",
        )
    if options.emit == "page":
        _require_page(target, options)
    return target


def _require_page(target: type[Target], options: CompileOptions) -> None:
    """Raises ConfigError for a page of what no browser runs, or with what a page cannot have."""
    if not target.browser:
        load_families()
        known = ", ".join(name for name, t in sorted(TARGETS.items()) if t.browser)
        raise ConfigError(f"no browser runs what the target {target.name} makes", f"--emit page goes with {known}")
    if options.embed_weights:
        raise ConfigError("a page has no library to embed its weights in", "leave out --embed-weights")


def _flag(field: str) -> str:
    """How the command line spells a field."""
    return f"--{field.replace('_', '-')}"


@lru_cache(maxsize=8)
def environment(search: tuple[str, ...]) -> jinja2.Environment:
    """Templates of some folders, in order."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.template_folders(search)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=ByteCode(),
    )


def render_kernel(
    search: tuple[str, ...], template: str, printer: IndexPrinter, key: str, version: str = "", **more: Any
) -> Rendered:
    """Render a kernel's template; `key` and `version` as in :func:`named`."""
    return named(kernel_text(search, template, printer, **more), printer, key, version)


def kernel_text(search: tuple[str, ...], template: str, printer: IndexPrinter, **more: Any) -> str:
    """The text of a kernel without a name."""
    return tidy(environment(search).get_template(template).render(k=printer.kernel, p=printer, **more))


def named(text: str, printer: IndexPrinter, key: str, version: str = "") -> Rendered:
    """A kernel's text with the name that follows from it; `key` distinguishes what the text does not show.

    Args:
        version: of the library's versions, the one that it is for; part of its name.
    """
    name = kernel_prefix(version) + hashlib.sha256(f"{key}\n{with_names(text)}".encode()).hexdigest()[:12]
    dims = tuple(dim(d) if isinstance(d, str) else d for d in printer.dim_names.used)
    return Rendered(name, text.replace(PLACEHOLDER, name), dims)


class IndexPrinter:
    """What every template asks for: names of arguments, axes and dimensions, and sizes as text.

    Args:
        kernel: the kernel that is rendered.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.name = PLACEHOLDER
        sizes = kernel.expressions()
        self.dim_names = DimNames([*dims_of(*sizes), *given_sizes(sizes)])
        self._axes: dict[Expr, str] = {}

    @property
    def sizes(self) -> list[str]:
        """Names of the sizes that were printed by now, in the order of ``dim``; a body is printed before its head."""
        return self.dim_names.names

    def axis(self, axis: Expr, name: str = "") -> str:
        """The name of a loop axis (its own unless another is given, which then stays)."""
        assert isinstance(axis.data, (tuple, str))
        self._axes[axis] = name or self._axes.get(axis, str(axis.data))
        return self._axes[axis]

    def extent(self, axis: Expr) -> str:
        return self.scalar(axis.args[0])

    def factor(self, axis: Expr) -> str:
        """The extent of an axis as an operand of a division."""
        return scalar(axis.args[0], self._axes, self.dim_names, self.kernel.buffers)

    def points(self, axes: Sequence[Expr]) -> str:
        """Number of points of a range of axes as text."""
        return self.scalar(self.total(axes))

    def packets(self, axes: Sequence[Expr], size: int) -> str:
        """Number of packets of `size` points in a range of axes, which it divides, as text."""
        return self.scalar(self.total(axes) // size)

    def total(self, axes: Sequence[Expr]) -> Expr:
        """Number of points of a range of axes."""
        return product([a.args[0] for a in axes])

    def scalar(self, e: Expr | int) -> str:
        """An index or size as text."""
        if isinstance(e, int):
            return str(e)
        text = scalar(e, self._axes, self.dim_names, self.kernel.buffers)
        bare = e.op != "select" and e not in self.dim_names and in_brackets(e)  # a ?: would fall apart behind a <
        return text[1:-1] if bare else text

    def counter(self, name: str, turns: int) -> Counter | int:
        """The counter of a loop, for arithmetic in a template; 0 where the loop takes one turn."""
        return counter_of(name, turns)

    def operand(self, e: Expr | Counter | int | str) -> str:
        """A size as an operand of a product: in brackets unless it is a plain number; text as it is."""
        if isinstance(e, Counter):
            return e.operand
        text = e if isinstance(e, str) else self.scalar(e)
        return text if isinstance(e, str) or text.isdigit() else f"({text})"

    def times(self, *factors: Expr | Counter | int | str) -> str:
        """A product of sizes and of texts, which are operands of such; ones are left out, and what is times the text 0.

        A size of 0 stays, as the step of an empty or broadcast operand: what it is multiplied with would not be used.
        """
        texts = [x for x in map(self.operand, factors) if x != "1"]
        return "0" if "0" in factors or 0 in factors else " * ".join(texts) or "1"

    def plus(self, *terms: Expr | Counter | int | str) -> str:
        """A sum of sizes and of texts, which are terms of such; zeros are left out, and negative numbers subtracted."""
        texts = [str(x) if isinstance(x, (str, Counter)) else self.scalar(x) for x in terms]
        first, *more = [x for x in texts if x != "0"] or ["0"]
        return first + "".join(f" - {x[1:]}" if x[0] == "-" and x[1:].isdigit() else f" + {x}" for x in more)

    def over(self, text: str, size: Expr | int) -> str:
        """A text, which is an operand of a division, divided by a size, unless that is 1."""
        return text if text == "0" or self.operand(size) == "1" else f"{text} / {self.operand(size)}"

    def modulo(self, text: str, size: Expr | int) -> str:
        """What is left of that division, 0 where a size of 1 leaves nothing."""
        return "0" if text == "0" or self.operand(size) == "1" else f"{text} % {self.operand(size)}"

    def join(self, a: Accumulator, left: str, right: str) -> str:
        """Two partial accumulations as one."""
        if a.term.dtype.is_float and a.how in OPERATORS:
            return f"{left} {OPERATORS[a.how]} {right}"
        return f"t_{a.how}_{a.term.dtype.compute}({left}, {right})"

    def axes_in(self, axes: Sequence[Expr], among: object) -> tuple[Expr, ...]:
        """Those of some axes that expressions in parts of the kernel read; elements kept in registers need none."""
        found: dict[Expr, None] = {}
        pending = expressions_in(among)
        while pending:
            e = pending.pop()
            if e not in found:
                found[e] = None
                pending += () if e.op == "axis" or (e.op == "load" and isinstance(e.data, str)) else e.args
        return tuple(a for a in axes if a in found)

    def takes(self, name: str, *among: object) -> bool:
        """Whether expressions in parts of the kernel take an accumulation, by its name."""
        return any(e.op == "acc" and e.data == name for e in walk(*expressions_in(among)))

    def at_least(self, e: Expr, size: int) -> bool:
        """Whether a size may reach `size`: false only when it is known to be smaller."""
        known = as_int(e)
        return known is None or known >= size

    def leaves(self, e: Expr, size: int, least: int = 1) -> bool:
        """Whether steps of `size` may leave `least` or more of a size: false only when it is known that they do not.

        Of none at all they do, so that a loop over nothing keeps one of its parts.
        """
        known = as_int(e)
        return size > least and (not known or known % size >= least)

    def ctype(self, dtype: Any) -> str:
        return CTYPES[dtype.name]


def indented(lines: Sequence[str], indent: int) -> str:
    """Lines as one text."""
    return "\n".join(" " * indent + x for x in lines)
