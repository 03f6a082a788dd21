"""The table of operators x element types x targets: ``python -m tests.conformance.operators [--write]``.

Operators come from the registry, with how each is computed. Whether a target takes an element type is found by asking
it: a case of the suite gives a node, which is compiled as far as its sources with its first operand's type (of its
result's, where there is no operand) replaced by each that torshc has. Without ``--write`` the exit code is 1 when the
file is not what is found.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import onnx
from onnx import defs, numpy_helper

from torshc.base.errors import ModelError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.base.resources import templates
from torshc.expr.dtype import DTYPES, STRING, DType
from torshc.formats import load_graph
from torshc.ops import REGISTRY, Op
from torshc.pipeline.compiler import prepare

from . import record
from .cases import Array, Case, all_cases
from .dynamic import SHAPES
from .runner import CONSTANTS

FILE = Path(templates("c")).parents[1] / "torshc" / "ops" / "README.md"
TARGETS = {"c": "C", "cuda": "CUDA", "metal": "Metal"}
TYPES = (*DTYPES.values(), STRING)
TRIED = 4  # cases that are asked with
OWN = "torshc"  # domain of operators that no model names
RUNTIME = "com.microsoft"  # domain that the suite has no case of
_DOMAINS = {"": "ai.onnx"}
_GROUPS = {
    "float": ("f16", "bf16", "f32", "f64"), "int": ("i8", "i16", "i32", "i64"), "uint": ("u8", "u16", "u32", "u64"),
    "f8": ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"), "4-bit": ("i4", "u4"), "2-bit": ("i2", "u2"),
}  # fmt: skip
_FAMILIES = {
    "float8": "f8", "float6": "f6", "float4": "f4", "int4": "4-bit", "uint4": "4-bit", "int2": "2-bit",
    "uint2": "2-bit", "complex": "complex",
}  # fmt: skip
_HOW = {"": "composite"}
_BY_RESULT = ("ConstantOfShape",)  # whose operand has one type only
_WIDTH = 80

_HEAD = """\
# Operators

Written by `python -m tests.conformance.operators --write`; a test fails when
it is not true. How an operator is computed:

| word | means |
|---|---|
| pointwise | one element in, one out; fuses with all around it |
| view | moves elements and computes nothing; index arithmetic in its readers |
| reduce, nest | a loop nest of its own |
| composite | made of other operators when a model is read, or by a pass |
| host | a step of the host program |
| other words | a kernel of that kind, with templates of its own |

Element types are those of the first operand, or of the result where there is
none. `float` is f16 bf16 f32 f64, `int` i8 to i64, `uint` u8 to u64, `f8` those
of four and five bits of exponent, `4-bit` i4 u4, `2-bit` i2 u2. Behind "not"
stand types that ONNX allows and torshc refuses. "=" is what C takes. Shapes,
axes and counts are constants here. "Not asked" are operators that no case of
onnx's suite has alone and with tensors only.
"""


def text() -> str:
    """The whole file; takes minutes."""
    return "\n".join([_HEAD, *_tables(), *_by_others(), *_refused()]) + "\n"


_BESIDE_RUNTIME = """\
`make contrib-fuzz COUNT=50` compares random nodes of them with ONNX Runtime's
kernels for processors: real numbers agree within rounding, and
quantised results within 1. What is known to differ:

- DynamicQuantizeLSTM quantises the state by the range of all rows, as ONNX
  Runtime does with one thread; with several it has a range for the rows of each.
- MatMulNBits multiplies in the type of its operand, whatever `accuracy_level`
  allows; at level 4 ONNX Runtime quantises the operand to 8 bits.
- Behind the last position the caches that GroupQueryAttention returns keep what
  they held, where ONNX Runtime writes 0."""


def _tables() -> list[str]:
    domains: dict[str, list[str]] = defaultdict(list)
    for domain, name in sorted(REGISTRY):
        if domain not in (OWN, RUNTIME):
            domains[domain].append(row(domain, name))
    out = []
    for domain, rows in domains.items():
        head = ["| operator | computed as | C | CUDA | Metal |", "|---|---|---|---|---|"]
        out += [f"## {_DOMAINS.get(domain, domain)}: {counted(len(rows))}", "", *head, *rows, ""]
    out += contrib()
    own = sorted(name for domain, name in REGISTRY if domain == OWN)
    return [*out, "Operators of torshc's own, which passes make:", *_wrapped(own), ""]


def counted(count: int) -> str:
    return f"{count} operator{'s' if count != 1 else ''}"


def contrib() -> list[str]:
    """The section of ONNX Runtime's own operators."""
    names = sorted(name for domain, name in REGISTRY if domain == RUNTIME)
    return [f"## {RUNTIME}: {counted(len(names))}", "", *_wrapped(names), "", _BESIDE_RUNTIME, ""]


def row(domain: str, name: str) -> str:
    """An operator's line."""
    cells = [accepted(domain, name, target) for target in TARGETS]
    c = [t.name for t in cells[0]]
    lacking = {_short(code) for code in allowed(domain, name) - {t.onnx for t in cells[0]}}
    texts = [_groups(c) + (f"; not {_groups(sorted(lacking))}" if lacking and c else "")]
    for cell in cells[1:]:
        names = [t.name for t in cell]
        less = [t for t in c if t not in names]
        texts.append("=" if not less else f"not {_groups(less)}" if names else "on the processor")
    if not templates_of(domain, name):
        texts = ["not asked", "", ""]
    return f"| {name} | {computed_as(REGISTRY[domain, name])} | {' | '.join(texts)} |"


def computed_as(op: type[Op]) -> str:
    """A word for its kind of implementation."""
    return _HOW.get(op.family, op.family).replace("_", " ")


def _short(code: int) -> str:
    """An element type; the several kinds of one that torshc lacks are one."""
    name = onnx.TensorProto.DataType.Name(code).lower()
    lacking = next((short for start, short in _FAMILIES.items() if name.startswith(start)), name)
    return next((t.name for t in TYPES if t.onnx == code), lacking)


def _groups(names: Sequence[str]) -> str:
    left = list(names)
    words = []
    for word, members in _GROUPS.items():
        if set(members) <= set(left):
            words.append(word)
            left = [name for name in left if name not in members]
    return " ".join(words + left) or "none"


# -- asking ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _candidates() -> dict[tuple[str, str], list[Case]]:
    """Cases of one node and tensors only, by domain and operator: those on record, the newest, the smallest first."""
    passing = record.read()
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in all_cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 and case.operator[:1] not in "([" and all(hasattr(v, "dtype") for v in case.values):
            found[nodes[0].domain, nodes[0].op_type].append(case)
    for cases in found.values():
        cases.sort(key=lambda c: (c.name not in passing, -_opset(c), sum(v.size for v in c.values), c.name))
    return found


def templates_of(domain: str, name: str) -> list[Case]:
    """The cases to ask with."""
    return _candidates().get((domain, name), [])[:TRIED]


def accepted(domain: str, name: str, target: str) -> list[DType]:
    """Element types with which a target compiles an operator."""
    return [t for t in TYPES if any(accepts(case, t, target) for case in templates_of(domain, name))]


def allowed(domain: str, name: str) -> set[int]:
    """Codes of the element types that ONNX allows."""
    return {code for case in templates_of(domain, name) for code in _allowed(case)}


def accepts(case: Case, dtype: DType, target: str) -> bool:
    """Whether the case's node compiles, as far as sources, with another element type."""
    model = retyped(case, dtype.onnx)
    if model is None:
        return False
    try:
        prepare(
            load_graph(model.SerializeToString()),
            CompileOptions(target=target, opt_level=0, fallback=False, threads=1, emit="source"),
        )
    except (UnsupportedError, ModelError):
        return False
    return True


def retyped(case: Case, code: int) -> onnx.ModelProto | None:
    """The model with another element type; shape operands are constants. None when ONNX does not allow the type."""
    if code not in _allowed(case):
        return None
    variable = _variable(case)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    node, schema = model.graph.node[0], _schema(case)
    operands = {name: _formal(schema.inputs, k).type_str for k, name in enumerate(node.input)}
    results = {name: _formal(schema.outputs, k).type_str for k, name in enumerate(node.output)}
    values = {name: a for name, a in case.feeds(0).items() if _is_shape(node, name)}
    for v in (*model.graph.input, *model.graph.output):
        if {**results, **operands}.get(v.name) == variable:
            v.type.tensor_type.elem_type = code
    for attribute in node.attribute:
        if attribute.HasField("t") and variable == schema.outputs[0].type_str:  # the value of a constant
            array = numpy_helper.to_array(attribute.t)
            attribute.t.CopyFrom(numpy_helper.from_array(_as(array, code)))
    for v in list(model.graph.input):
        if v.name in values:
            array = _as(values[v.name], v.type.tensor_type.elem_type)
            model.graph.initializer.append(numpy_helper.from_array(array, v.name))
            model.graph.input.remove(v)
    return model


def feeds_of(case: Case, model: onnx.ModelProto) -> dict[str, Array]:
    """The case's values for the inputs that `model` still has, in its types."""
    feeds = case.feeds(0)
    return {v.name: _as(feeds[v.name], v.type.tensor_type.elem_type) for v in model.graph.input}


def _as(array: Array, code: int) -> Array:
    wanted = onnx.helper.tensor_dtype_to_np_dtype(code)
    return array.astype(str).astype(object) if wanted.kind == "O" else array.astype(wanted)


def _is_shape(node: onnx.NodeProto, name: str) -> bool:
    return any(node.input[k] == name for k in SHAPES.get(node.op_type, ()) if k < len(node.input))


def _opset(case: Case) -> int:
    domain = case.model.graph.node[0].domain
    return next((o.version for o in case.model.opset_import if o.domain == domain), 1)


def _schema(case: Case) -> defs.OpSchema:
    node = case.model.graph.node[0]
    return defs.get_schema(node.op_type, _opset(case), node.domain)


def _formal(formals: Sequence[defs.OpSchema.FormalParameter], k: int) -> defs.OpSchema.FormalParameter:
    return formals[min(k, len(formals) - 1)]  # the last may stand for many


def _variable(case: Case) -> str:
    schema, node = _schema(case), case.model.graph.node[0]
    return (schema.inputs[0] if node.input and node.op_type not in _BY_RESULT else schema.outputs[0]).type_str


def _allowed(case: Case) -> set[int]:
    variable = _variable(case)
    constraints = {c.type_param_str: c.allowed_type_strs for c in _schema(case).type_constraints}
    names = constraints.get(variable, [variable])
    codes = {f"tensor({name.lower()})": code for name, code in onnx.TensorProto.DataType.items()}
    return {codes[name] for name in names if name in codes}


# -- sections --------------------------------------------------------------------------------------------------------


def _by_others() -> list[str]:
    """Operators without a class whose cases pass: ONNX defines them by others, or the import sees to them."""
    passing = record.read()
    names = {
        case.operator
        for case in all_cases()
        if case.name in passing and case.operator[:1] not in "(["
        if not any((domain, case.operator) in REGISTRY for domain in {n.domain for n in case.model.graph.node})
    }
    return ["Without a class, by ONNX's definition or by the import itself:", *_wrapped(sorted(names)), ""]


def _refused() -> list[str]:
    """What of the suite does not pass, by reason."""
    recorded, reasons = record.read(), record.read_refused()
    fixed = sum(mark == CONSTANTS for mark in recorded.values())
    total = len(all_cases())
    out = ["## The suite of the onnx package", ""]
    rest = total - len({*recorded, *reasons})
    out += _folded(
        f"Of {total} cases {len(recorded)} pass, {fixed} of them with shape operands made constants; "
        f"{len(reasons)} are refused. {f'{rest} are not on record' if rest else 'None is wrong'}."
    )
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        by_reason[_without_place(reason)].append(name)
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        out += ["", *_folded(f"* {reason} ({len(names)}): {', '.join(sorted(names))}", "  ")]
    return out


def _without_place(reason: str) -> str:
    """A refusal without the node that it names first."""
    first = reason.partition("; ")[0]
    return first.rpartition("): ")[2] if "): " in first else first.rpartition(": ")[2]


def _wrapped(names: Iterable[str]) -> list[str]:
    return _folded(", ".join(names) + ".")


def _folded(line: str, indent: str = "") -> list[str]:
    import textwrap

    return textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main(arguments: Sequence[str]) -> int:
    found = text()
    if "--write" in arguments:
        FILE.write_text(found)
        return 0
    stated = FILE.read_text() if FILE.exists() else ""
    differing = Counter(stated.splitlines()) - Counter(found.splitlines())
    for line in [*differing, *(Counter(found.splitlines()) - Counter(stated.splitlines()))]:
        print(line)
    return int(stated != found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
