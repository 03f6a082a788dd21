"""ONNX models from nodes, arrays and names, or from ONNX's text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = Sequence[int | str | None]
Opset: TypeAlias = int | Mapping[str, int]  # ONNX's, or of each domain
# What an input is declared as: an array's type and shape, floats of a shape, or a type (NumPy's or ONNX's) and a shape.
Like: TypeAlias = Array | Shape | tuple[Any, Shape]

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
VERSIONS = {"": 20, ML: 3}


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; operands are separated by blanks, `_` is an absent one."""
    names = [n if n != "_" else "" for n in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def value(name: str, like: Like) -> onnx.ValueInfoProto:
    """The declaration of a tensor."""
    if isinstance(like, np.ndarray):
        like = (like.dtype, like.shape)
    elif not (isinstance(like, tuple) and len(like) == 2 and isinstance(like[1], tuple | list)):
        like = (np.float32, like)
    dtype, shape = like
    return helper.make_tensor_value_info(
        name, dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Like] | Sequence[onnx.ValueInfoProto],
    outputs: str | Sequence[str | onnx.ValueInfoProto] | None = None,
    weights: Mapping[str, Any] | None = None,
    opset: Opset = 20,
    **more: Any,
) -> onnx.ModelProto:
    """A model whose outputs declare no types unless they are whole declarations.

    Args:
        outputs: a list, or names separated by blanks; all that begin with y where none are named.
        weights: initializers, which are no inputs.
        opset: domains that it does not name have their usual one.
        more: as of onnx.helper.make_model(): functions, ir_version.
    """
    names = outputs.split() if isinstance(outputs, str) else outputs
    if names is None:
        names = [o for n in nodes for o in n.output if o.startswith("y")]
    graph = helper.make_graph(
        nodes,
        "test",
        [value(n, like) for n, like in inputs.items()] if isinstance(inputs, Mapping) else inputs,
        [onnx.ValueInfoProto(name=n) if isinstance(n, str) else n for n in names],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    domains = {d: VERSIONS.get(d, 1) for d in sorted({"", *(n.domain for n in nodes)})}
    domains |= {"": opset} if isinstance(opset, int) else opset
    imports = [helper.make_opsetid(d, version) for d, version in domains.items()]
    return helper.make_model(graph, **({"opset_imports": imports, "ir_version": 10} | more))


def with_types(made: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types that ONNX infers."""
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def node_model(
    op: str,
    operands: Sequence[Array | None],
    fixed: Sequence[int] = (),
    outputs: int = 1,
    dims: Mapping[int, Shape] | None = None,
    domain: str = "",
    version: Opset = 20,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node from x0, x1... to out0, out1...

    Args:
        operands: arrays like which inputs are declared, or None where one is absent.
        fixed: places of operands that are initializers.
        dims: shapes that inputs declare, where they are not the arrays'.
        version: the opset; attributes may be named so.
    """
    order = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    results = [f"out{k}" for k in range(outputs)]
    it = helper.make_node(op, order, results, domain=domain, name="it", **attributes)
    likes = {n: (a.dtype, (dims or {}).get(int(n[1:]), a.shape)) for n, a in feeds_of(operands, fixed).items()}
    known = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k in fixed}
    return model([it], likes, results, known, version)


def feeds_of(operands: Sequence[Array | None], fixed: Sequence[int] = ()) -> dict[str, Array]:
    """What the inputs of :func:`node_model` are given."""
    return {f"x{k}": a for k, a in enumerate(operands) if a is not None and k not in fixed}


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    """A model in ONNX's text form, or a graph of it without its name."""
    head = "" if text.lstrip().startswith("<") else f'<ir_version: 8, opset_import: ["" : {opset}]> g '
    return parser.parse_model(head + text)


def save(made: onnx.ModelProto | str, path: Path) -> Path:
    """Write a model, from text if need be; a folder gets it as `m.onnx`."""
    path = path / "m.onnx" if path.is_dir() else path
    onnx.save(parsed(made) if isinstance(made, str) else made, path)
    return path
