"""What a browser runs: ``model.js``, its types, and a page that tries the model.

``model.js.j2`` renders the host program that C has in ``host.c``, with sizes as JavaScript (:mod:`.browser_sizes`).
What all models share is plain JavaScript beside it. Names of a model stand in it as JSON strings; the page holds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from ..base.errors import UnsupportedError
from ..base.manifest import Manifest, TensorSpec
from ..expr import as_expr, as_int, to_text
from ..targets.base import SUBGROUPS, HostFiles, environment
from .browser_sizes import javascript
from .host import Condition, HostProgram, Launch, Move, Size, check_program, sizes_of
from .host_source import EQUATION
from .package import BROWSER
from .sizes import Part, Sizes
from .weights import FOOTER, WeightsInfo

MADE, PLAIN = BROWSER[:2], BROWSER[2:]
SIZES = 64  # that a kernel can be given, with its number of blocks
ARRAYS = {
    "f64": "Float64Array", "f32": "Float32Array", "f16": "Uint16Array", "bf16": "Uint16Array", "i64": "BigInt64Array",
    "u64": "BigUint64Array", "i32": "Int32Array", "u32": "Uint32Array", "i16": "Int16Array", "u16": "Uint16Array",
    "i8": "Int8Array", "u8": "Uint8Array", "bool": "Uint8Array",
}  # fmt: skip
_NO_MARKUP = {ord(c): f"\\u{ord(c):04x}" for c in "<>&'"}
_NO_TEMPLATE = {ord("\\"): "\\\\", ord("`"): "\\`", ord("$"): "\\$"}


def literal(value: Any) -> str:
    r"""JSON that is JavaScript as well, and data wherever it stands in a page.

    >>> print(literal("</script>\u2028"))
    "\u003c/script\u003e\u2028"
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False).translate(_NO_MARKUP)


@dataclass(frozen=True)
class PortView:
    """An input or output: its name as JavaScript, its dimensions for a comment, and the array of its elements."""

    name: str
    dtype: str
    shown: str
    array: str


@dataclass(frozen=True)
class KernelView:
    """A kernel: its text inside a template literal, that for devices with subgroups, and whether it is given sizes."""

    symbol: str
    text: str
    subgroups: str
    sized: str


@dataclass(frozen=True)
class FormView:
    """A form of a host program as the templates render it.

    Attributes:
        p: the program of the form.
        first: number of its first step.
        inputs: what the model calls its inputs.
    """

    p: HostProgram
    first: int
    inputs: Sequence[TensorSpec]

    @cached_property
    def _writer(self) -> Sizes:
        conditions = [e for c in self.p.conditions for e in (c.left, c.right)]
        dims = [d for step in self.p.steps for d in step.dims]
        sizes = [*sizes_of(self.p), *conditions, *dims]
        return Sizes(self.p.names, sizes=sizes, write=javascript, given=self.p.given)

    @property
    def parts(self) -> list[Part]:
        """The named parts of sizes, in order."""
        return self._writer.parts

    @property
    def bound(self) -> str:
        """The parameters for the symbols."""
        return ", ".join(f"s{k}" for k in range(len(self.p.symbols)))

    def text(self, size: Size | None) -> str:
        """A size as JavaScript; null for none."""
        return "null" if size is None else self._writer.text(size)

    def texts(self, sizes: Iterable[Size | None]) -> str:
        """Sizes as JavaScript, with commas between."""
        return ", ".join(map(self.text, sizes))

    @property
    def conditions(self) -> str:
        """The equations that sizes satisfy, as JavaScript: of each how a message says it, and both sides."""
        return ", ".join(f"[{self._equation(c)}, {self.texts((c.left, c.right))}]" for c in self.p.conditions)

    def move(self, move: Move) -> str:
        """A copy at the end of a step, as JavaScript: from where, to which place of the states, and bytes."""
        source = f'["{move.source.space}", {move.source.index}, {self.text(move.source.offset)}]'
        return f"[{source}, {self.text(move.target.offset)}, {move.bytes}]"

    def bindings(self, step: Launch) -> str:
        """The buffers that a launch binds, as JavaScript: of each its space, number, offset and bytes."""
        given = zip(step.buffers, step.spans, strict=True)
        return ", ".join(f'["{b.space}", {b.index}, {self.texts((b.offset, span))}]' for b, span in given)

    def _equation(self, c: Condition) -> str:
        """A condition for a message, in terms of the inputs."""
        spelled = {n: n for n in self.p.names}
        for name, s in zip(self.p.names, self.p.symbols, strict=False):
            of = self.inputs[s.input].name
            spelled[name] = f"{of}.dims[{s.dim}]" if s.kind == "dim" else f"{of}[{s.dim}]"
        return literal(" == ".join(to_text(e, EQUATION, spelled) for e in (c.left, c.right)))


@dataclass(frozen=True)
class BrowserView:
    """A host program as the templates render it.

    Attributes:
        p: the program.
        manifest: what the model calls inputs and outputs.
        texts_of_kernels: WGSL by the kernels' names, of other forms with ``.subgroups`` behind these.
        weights: the weights file.
    """

    p: HostProgram
    manifest: Manifest
    texts_of_kernels: Mapping[str, str]
    weights: WeightsInfo

    @property
    def forms(self) -> list[FormView]:
        """The fast form, its variants, and the loose one where there is one."""
        firsts = accumulate((len(form.steps) for form in self.p.forms), initial=0)
        return [FormView(p, first, self.manifest.inputs) for p, first in zip(self.p.forms, firsts, strict=False)]

    @property
    def name(self) -> str:
        return literal(self.manifest.model)

    @property
    def weights_file(self) -> str:
        """Bytes of the weights and of their file, and its hash, as JavaScript; null for none."""
        w = self.weights
        return literal({"payload": w.bytes, "file": w.bytes + FOOTER, "sha256": w.sha256} if w.bytes else None)

    def ports(self, kind: str) -> str:
        """The "inputs" or "outputs" as JavaScript."""
        return literal([{"name": t.name, "dtype": t.dtype, "dims": [*t.dims]} for t in getattr(self.manifest, kind)])

    @property
    def symbols(self) -> str:
        """Where the symbols are read, and their bounds, as JavaScript."""
        fields = ("input", "dim", "min", "max", "kind")
        return literal([{name: getattr(s, name) for name in fields} for s in self.p.symbols])

    @property
    def states(self) -> str:
        """The states of a model that trains, as JavaScript."""
        fields = ("name", "dtype", "dims", "offset", "bytes", "first", "trained")
        return literal([{name: getattr(s, name) for name in fields} for s in self.p.states])

    @property
    def state_header(self) -> str:
        """The header of its files of states, as JavaScript."""
        return literal(self.p.state_header)

    @property
    def variants(self) -> str:
        """The sizes that each variant is for, as JavaScript."""
        return literal([[[b.symbol, b.least, b.most] for b in p.taken] for p in self.p.variants])

    @property
    def inputs(self) -> list[PortView]:
        return [_port(t) for t in self.manifest.inputs]

    @property
    def outputs(self) -> list[PortView]:
        return [_port(t) for t in self.manifest.outputs]

    @property
    def kernels(self) -> list[KernelView]:
        """The distinct kernels, in the order of their first launches."""
        first: dict[str, Launch] = {}
        for step in (step for form in self.p.forms for step in form.steps):
            first.setdefault(step.symbol, step)
        texts = {name: text.translate(_NO_TEMPLATE) for name, text in self.texts_of_kernels.items()}
        return [KernelView(s, texts[s], texts.get(f"{s}.{SUBGROUPS}", ""), literal(x.sized)) for s, x in first.items()]


def _port(t: TensorSpec) -> PortView:
    shown = literal([*t.dims]).replace("/", "\\/")  # inside a comment
    return PortView(literal(t.name), t.dtype, shown, ARRAYS[t.dtype])


def require_device_only(program: HostProgram, nodes: Iterable[str]) -> None:
    """Checks that a device runs all of a program.

    Args:
        nodes: what the host would do between kernels, a line each.

    Raises:
        UnsupportedError: naming all that a browser cannot do.
    """
    problems = [f"{node} runs between kernels, on the processor" for node in nodes]
    # What a node decides from data, such as how many boxes NonMaxSuppression keeps, no shape of an input settles.
    remedy = "pin what it depends on with --shapes, or compile a library" if not problems else "compile a library"
    ports = (
        (kind, port) for kind, ports in (("an input", program.inputs), ("an output", program.outputs)) for port in ports
    )
    problems += [
        f"{kind} holds {port.dtype}, for which JavaScript has no array"
        for kind, port in ports
        if port.dtype not in ARRAYS
    ]
    for k, step in enumerate(step for form in program.forms for step in form.steps):
        blocks = as_int(as_expr(step.tasks)) or 0  # those that depend on a run are sizes of it, too
        problems += [f"step {k} is given {len(step.dims)} sizes"] if len(step.dims) >= SIZES else []
        problems += [f"step {k} has {blocks} blocks"] if blocks >= 2**31 else []
    if program.script is not None and not problems:
        problems = ["sizes or steps are known only at run time"]
    if problems:
        raise UnsupportedError(
            [f"{p}, which a page cannot do" for p in problems],
            remedy,
        )


def browser_files(
    program: HostProgram, files: HostFiles, manifest: Manifest, kernels: Mapping[str, str], weights: WeightsInfo
) -> dict[str, str]:
    """The files of a page, by name.

    Args:
        files: the target's files.
        kernels: as :class:`BrowserView` has them.

    Raises:
        InternalError: the program contradicts itself.
    """
    for form in program.forms:
        check_program(form)
    view, find = BrowserView(program, manifest, kernels, weights), environment(files.search).get_template
    made = {name: find(f"{name}.j2").render(v=view) for name in MADE}
    return {**made, **{name: files.text(name) for name in PLAIN}}
