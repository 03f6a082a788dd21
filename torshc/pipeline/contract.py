"""What an edited kernel has to keep to: its contract, by which it is known again in another compilation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..expr import Expr, as_int, const, dims_of, to_text
from ..kernels.base import Buffer, Kernel, Packed, Temporary
from .compilation import Compilation, Unit

FILE = "contract.json"
ORIGINAL = "original"  # the generated source, beside the edited one
EDITED = "kernel"
_OF_INTERFACE = ("symbol", "target", "buffers", "dims", "tasks", "scratch")
_SUFFIX = re.compile(r"\.[a-z]+\Z")
_LIMIT = 1 << 16  # nodes of an expression; a contract says it whole


@dataclass(frozen=True)
class Argument:
    """A buffer of a kernel: element type, bytes, whether it is written, and what it is of.

    ``what`` is "value", "weight", "packed" (a weight in the kernel's own form) or "temporary".
    """

    dtype: str
    bytes: int | str
    written: bool
    what: str


@dataclass(frozen=True)
class Contract:
    """A kernel's contract. Sizes are numbers, or text over s0, s1, ..., the model's symbolic sizes.

    Attributes:
        symbol: its name, made from its generated text: whatever changes what it computes changes the name.
        target, suffix: what it is for, and the ending of its source.
        kind: kind of the kernel.
        buffers: its arguments in order.
        dims: the sizes that it finds in ``dim``, in order.
        tasks: pieces of work; it is given a range of them, or as many blocks.
        scratch: bytes of scratch for a thread.
        group: number of its group where it was ejected.
        nodes: operators and names of the nodes there.
    """

    symbol: str
    target: str
    suffix: str
    kind: str
    buffers: tuple[Argument, ...]
    dims: tuple[int | str, ...]
    tasks: int | str
    scratch: int | str
    group: int
    nodes: tuple[str, ...]

    @property
    def interface(self) -> str:
        """The hash by which an edited kernel is taken for a generated one."""
        body = dataclasses.asdict(self)
        text = json.dumps({name: body[name] for name in _OF_INTERFACE}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """The text of contract.json."""
        return json.dumps({"interface": self.interface, **dataclasses.asdict(self)}, indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Contract:
        """A contract as it was written.

        Raises:
            KeyError, TypeError: it lacks something, or was altered.
        """
        given: dict[str, Any] = {f.name: body[f.name] for f in dataclasses.fields(cls)}
        given["buffers"] = tuple(Argument(**a) for a in given["buffers"])
        given |= {name: tuple(v) for name, v in given.items() if isinstance(v, list)}
        found = cls(**given)
        texts = (found.symbol, found.target, found.suffix, found.kind, *found.nodes)
        if not all(isinstance(text, str) for text in texts) or not _SUFFIX.match(found.suffix):
            raise TypeError("it was altered: a name in it is none")
        if found.interface != body["interface"]:
            raise TypeError("it was altered: its interface is not the hash of what it says")
        return found

    def differences(self, other: Contract) -> list[str]:
        """What another kernel has that this one has not, a phrase each."""
        found = []
        for k, (mine, its) in enumerate(zip(self.buffers, other.buffers, strict=False)):
            if mine != its:
                found.append(f"buffer {k} is {_argument(its)}, not {_argument(mine)}")
        for name in ("target", "kind", "dims", "tasks", "scratch"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                found.append(f"{name} is {_show_field(its)}, not {_show_field(mine)}")
        if len(self.buffers) != len(other.buffers):
            found.append(f"it has {len(other.buffers)} buffers, not {len(self.buffers)}")
        return found or ["its generated source is another"]


def _argument(a: Argument) -> str:
    return f"{a.bytes} bytes of {a.dtype}{', written' if a.written else ''}"


def _show_field(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def contracts_of(compilation: Compilation, unit: Unit) -> Iterator[tuple[Kernel, Contract]]:
    """The kernels of a group with their contracts."""
    for kernel, symbol in zip(unit.kernels, unit.symbols, strict=True):
        dims = compilation.dims_of_kernels[symbol]
        sizes = [*dims, kernel.tasks, kernel.scratch, *(bytes_of(b) for b in kernel.buffers)]
        names = {name: f"s{k}" for k, name in enumerate(dims_of(*sizes))}
        yield (
            kernel,
            Contract(
                symbol,
                compilation.options.target,
                unit.suffix,
                kernel.kind,
                tuple(Argument(b.dtype.name, _size(bytes_of(b), names), b.written, _what(b)) for b in kernel.buffers),
                tuple(_size(d, names) for d in dims),
                _size(kernel.tasks, names),
                _size(kernel.scratch, names),
                unit.group.id,
                tuple(" ".join(filter(None, (n.op.name, n.name))) for n in unit.group.nodes),
            ),
        )


def sizes_of_kernel(compilation: Compilation, kernel: Kernel, symbol: str) -> dict[str, list[Expr]]:
    """What a contract says as text, as expressions: "dims", "tasks", "scratch" and "bytes" of buffers."""
    return {
        "dims": list(compilation.dims_of_kernels[symbol]),
        "tasks": [kernel.tasks],
        "scratch": [kernel.scratch],
        "bytes": [bytes_of(b) for b in kernel.buffers],
    }


def bytes_of(b: Buffer) -> Expr:
    """Bytes of an argument, from where it begins."""
    o = b.operand
    whole = const(o.nbytes) if isinstance(o, Packed) else o.nbytes if isinstance(o, Temporary) else o.type.nbytes
    return whole - b.start_bytes


def _what(b: Buffer) -> str:
    if isinstance(b.operand, Packed):
        return "packed"
    if isinstance(b.operand, Temporary):
        return "temporary"
    return "weight" if b.operand.const is not None else "value"


def _size(e: Expr, names: Mapping[str, str]) -> int | str:
    known = as_int(e)
    return to_text(e, _LIMIT, names) if known is None else known
