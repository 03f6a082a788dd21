"""Cases with sizes that are known only at run time.

A case *can be made dynamic* when at least one of these can be done to its model, and then all of them are done:

* a dimension of a tensor input that is neither a shape operand nor fixed by an operator that reads it (`_FIXED`: the
  4 of a box, the directions and gates of a recurrent weight, the kernel's axes where ``kernel_shape`` states them)
  becomes a symbol;
* a shape operand (`SHAPES`: shapes, axes, pads, repeats, counts, scales) that is an initializer or a Constant node of
  the main graph becomes an input, of the length that it had, as ranks follow from the length.

So a case cannot be made dynamic that has no inputs, or only scalars, sequences, optionals and shape operands that are
inputs already. ConstantOfShape of a constant stands for stored weights and stays.

Shapes that the model states beside those of its inputs (outputs, inner values, bodies) are forgotten. There are up to
three variants of a case, the most general first; the next is tried when one is refused:

* ``passed``: each dimension is a symbol of its own;
* ``ones``: dimensions of size 1 stay, as a symbol that broadcasts is one that torshc takes to be the other's size;
* ``shared``: besides, dimensions of equal size are one symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .cases import Array, Case, free_inputs

FREE, ONES, SHARED = "passed", "ones", "shared"
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

# Operands that decide about sizes, by operator.
SHAPES: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,),
    "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,),
    "Loop": (0,), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4), "OneHot": (1,),
    "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "Slice": (1, 2, 3, 4),
    "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,), "Tile": (1, 2), "TopK": (1,), "Trilu": (1,),
    "Unsqueeze": (1,), "Upsample": (1,), **{f"Reduce{name}": (1,) for name in _REDUCTIONS},
}  # fmt: skip

_ALL: Callable[[int], range] = range


def _kernel(rank: int) -> range:
    """What kernel_shape states."""
    return range(2, rank)


# Axes of operands that an operator fixes, from the operand's rank.
_FIXED: dict[tuple[str, int], Callable[[int], range]] = {
    ("AffineGrid", 0): lambda rank: range(1, rank),
    ("Conv", 1): _kernel,
    ("ConvInteger", 1): _kernel,
    ("ConvTranspose", 1): _kernel,
    ("DFT", 0): lambda rank: range(rank - 1, rank),
    ("DeformConv", 1): _kernel,
    ("DeformConv", 2): lambda rank: range(1, 2),
    ("DeformConv", 4): lambda rank: range(1, 2),
    ("GatherND", 1): lambda rank: range(rank - 1, rank),
    ("GridSample", 1): lambda rank: range(rank - 1, rank),
    ("If", 0): _ALL,
    ("Loop", 1): _ALL,
    ("MaxRoiPool", 1): lambda rank: range(1, rank),
    ("NonMaxSuppression", 0): lambda rank: range(2, rank),
    ("OneHot", 2): _ALL,
    ("QLinearConv", 3): _kernel,
    ("RoiAlign", 1): lambda rank: range(1, rank),
    ("STFT", 0): lambda rank: range(2, rank),
    ("ScatterND", 1): lambda rank: range(rank - 1, rank),
}
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_RECURRENT = ("GRU", "LSTM", "RNN")
_VALUES = ("value", "value_int", "value_ints", "value_float", "value_floats")


def variants(case: Case) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """Its dynamic forms, the most general first: (verdict when it passes, model, values of inputs that it got).

    Nothing when the case cannot be made dynamic.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    more = _promote(model.graph)
    places = {(v.name, axis): size for v in free_inputs(case.model) for axis, size in _free_axes(v, model.graph)}
    if not places and not more:
        return
    _forget(model)
    yield FREE, _with_symbols(model, {place: f"d{k}" for k, place in enumerate(places)}), more
    wide = {place: size for place, size in places.items() if size != 1}
    if len(wide) < len(places):
        yield ONES, _with_symbols(model, {place: f"d{k}" for k, place in enumerate(wide)}), more
    if len(set(wide.values())) < len(wide):
        yield SHARED, _with_symbols(model, {place: f"n{size}" for place, size in wide.items()}), more


def _promote(graph: onnx.GraphProto) -> dict[str, Array]:
    """Makes constant shape operands inputs; returns their values."""
    wanted = {
        name
        for node in graph.node
        if node.op_type != "ConstantOfShape"
        for k, name in enumerate(node.input)
        if name and k in SHAPES.get(node.op_type, ())
    }
    made = {o.name for o in graph.output}
    found: dict[str, Array] = {}
    for t in list(graph.initializer):
        if t.name in wanted - made:
            found[t.name] = numpy_helper.to_array(t)
            graph.initializer.remove(t)
    for node in list(graph.node):
        if node.op_type == "Constant" and node.output[0] in wanted - made and node.attribute[0].name in _VALUES:
            found[node.output[0]] = _constant(node.attribute[0])
            graph.node.remove(node)
    declared = {v.name for v in graph.input}
    for name, array in found.items():
        if name not in declared:
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, dtype, array.shape))
    return found


def _constant(attribute: onnx.AttributeProto) -> Array:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value, np.float32 if attribute.name.startswith("value_float") else np.int64)


def _free_axes(v: onnx.ValueInfoProto, graph: onnx.GraphProto) -> Iterator[tuple[int, int]]:
    """Axes of an input that nothing fixes, with their sizes."""
    if v.type.WhichOneof("value") != "tensor_type":
        return
    dims = v.type.tensor_type.shape.dim
    fixed = {axis for node in graph.node for k, name in enumerate(node.input) if name == v.name
             for axis in _fixed_axes(node, k, len(dims))}  # fmt: skip
    for axis, d in enumerate(dims):
        if d.HasField("dim_value") and axis not in fixed:
            yield axis, d.dim_value


def _fixed_axes(node: onnx.NodeProto, k: int, rank: int) -> range:
    op = node.op_type
    if k in SHAPES.get(op, ()):
        return range(rank)
    if op in _RECURRENT and k not in (0, 4):  # hidden_size and direction fix the rest, but for two sizes
        batch_first = any(a.name == "layout" and a.i for a in node.attribute)
        return range(2) if k == 1 else range(int(batch_first), rank) if k in (5, 6) else range(rank)
    if op in _CONVOLUTIONS and not any(a.name == "kernel_shape" for a in node.attribute):
        return range(0)
    fixed = _FIXED.get((op, k))
    return fixed(rank) if fixed else range(0)


def _forget(model: onnx.ModelProto) -> None:
    """Removes stated shapes: all in bodies, sizes of outputs."""
    for function in model.functions:
        del function.value_info[:]
    _forget_inner(model.graph)
    for v in model.graph.output:
        if v.type.WhichOneof("value") == "tensor_type":
            for d in v.type.tensor_type.shape.dim:
                d.Clear()


def _forget_inner(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                for v in (*attribute.g.input, *attribute.g.output):
                    v.type.tensor_type.ClearField("shape") if v.type.HasField("tensor_type") else None
                _forget_inner(attribute.g)


def _with_symbols(model: onnx.ModelProto, symbols: dict[tuple[str, int], str]) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model)
    inputs = {v.name: v for v in out.graph.input}
    for (name, axis), symbol in symbols.items():
        inputs[name].type.tensor_type.shape.dim[axis].dim_param = symbol
    return out
