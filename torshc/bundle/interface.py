"""A model's own C interface: ``NAME.h``, by its own names, and the functions ``NAME_...`` that it declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..base.manifest import TensorSpec
from ..expr import as_expr
from ..targets.base import HostFiles, environment
from .host import HostProgram, Port
from .names import identifiers

_ELEMENTS_MAX = 2**31 - 1  # of an enumeration
_CTYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "i8": "int8_t", "i4": "int8_t",
    "i2": "int8_t", "string": "torshc_string",
}  # fmt: skip
_NESTED = ("sequence", "optional", "map")
# What the structure of a call, or a variable of the function that takes it, has besides.
_TAKEN = ("device",)


@dataclass(frozen=True)
class Tensor:
    """An input or output as the header shows it.

    Attributes:
        word: its name in C.
        port: its type and dimensions.
        dims: each dimension as C: a number, a member of the structure of a call, or "" where the library says it.
        own: members of that structure that only this tensor has.
    """

    word: str
    port: Port
    dims: tuple[str, ...]
    own: tuple[str, ...] = ()

    @property
    def ctype(self) -> str:
        """The C type of an element, or of the bits of one."""
        return _CTYPES.get(self.port.dtype, "uint8_t")

    @property
    def nested(self) -> bool:
        """Whether its elements are tensors."""
        return self.port.dtype in _NESTED

    @property
    def elements(self) -> int | None:
        """How many elements there are, where that is always the same number and fits an enumeration."""
        known = None if -1 in self.port.static_dims else prod(self.port.static_dims)
        return None if known is None or known > _ELEMENTS_MAX or self.nested else known

    @property
    def shown(self) -> str:
        """Its type and dimensions, for a comment."""
        return f"{self.port.dtype} [{', '.join(d.removeprefix('t->') or '?' for d in self.dims)}]"

    @property
    def shape(self) -> str:
        """What its shape begins with in C."""
        return ", ".join(d or "0" for d in self.dims) or "0"


@dataclass(frozen=True)
class Interface:
    """What is special about a model for who calls it from C.

    Attributes:
        prefix: what its functions' names begin with.
        program: its inputs, outputs and symbols.
        inputs, outputs: with the model's names.
    """

    prefix: str
    program: HostProgram
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]

    @property
    def identity(self) -> str:
        """A name that no library of the same prefix for a model with other inputs and outputs has."""
        return f"{self.prefix}_is_{self.program.interface_id:016x}"

    @property
    def dynamic(self) -> bool:
        """Whether only a run shows the sizes of its outputs."""
        return self.program.script is not None

    @property
    def trains(self) -> bool:
        """Whether the library trains its model."""
        return bool(self.program.states)

    @cached_property
    def _words(self) -> list[str]:
        """Identifiers of the symbols that are dimensions, the inputs and the outputs."""
        names = [(n, f"dim{k}") for k, n in enumerate(self._dims)]
        names += [(x.name, f"input{k}") for k, x in enumerate(self.inputs)]
        names += [(x.name, f"output{k}") for k, x in enumerate(self.outputs)]
        return identifiers(names, _TAKEN)

    @cached_property
    def _dims(self) -> list[str]:
        p = self.program
        return [n for n, s in zip(p.names, p.symbols, strict=False) if s.kind == "dim"]

    @cached_property
    def symbols(self) -> dict[str, str]:
        """Identifiers of the symbols that are dimensions of inputs."""
        return dict(zip(self._dims, self._words, strict=False))

    @cached_property
    def given(self) -> list[Tensor]:
        """The inputs."""
        first = len(self._dims)
        words = self._words[first : first + len(self.inputs)]
        found, taken = [], {*_TAKEN, *self._words}
        for word, port in zip(words, self.program.inputs, strict=True):
            dims = self._known_dims(port)
            for k in (k for k, d in enumerate(dims) if not d):
                name = f"{word}_dim{k}"
                while name in taken:
                    name += "_"
                taken.add(name)
                dims[k] = f"t->{name}"
            own = tuple(d[3:] for d, known in zip(dims, self._known_dims(port), strict=True) if not known)
            found.append(Tensor(word, port, tuple(dims), own))
        return found

    def _known_dims(self, port: Port) -> list[str]:
        """The dimensions that are numbers or symbols."""
        found = []
        for size, number in zip(port.dims, port.static_dims, strict=True):
            e = None if size is None else as_expr(size)
            symbol = self.symbols.get(str(e.data)) if e is not None and e.op == "dim" else None
            found.append(str(number) if number >= 0 else f"t->{symbol}" if symbol else "")
        return found

    @cached_property
    def made(self) -> list[Tensor]:
        """The outputs."""
        words = self._words[len(self._dims) + len(self.inputs) :]
        return [
            Tensor(word, port, tuple(self._known_dims(port)))
            for word, port in zip(words, self.program.outputs, strict=True)
        ]

    @property
    def stack(self) -> int:
        """Bytes of the arrays of NAME_call: a tensor (48 bytes) and its shape for each input and output."""
        shapes = [0 if self.dynamic else max(len(x.dims), 1) for x in self.made]
        shapes += [0 if x.nested else max(len(x.dims), 1) for x in self.given]
        return 48 * (len(self.given) + len(self.made)) + 8 * sum(shapes)

    def header(self, files: HostFiles) -> str:
        """The header ``NAME.h``."""
        return environment(files.search).get_template("name.h.j2").render(i=self, prefix=self.prefix)

    def source(self, files: HostFiles) -> str:
        """The source of the functions ``NAME_...``."""
        return environment(files.search).get_template("name.c.j2").render(i=self, prefix=self.prefix)
