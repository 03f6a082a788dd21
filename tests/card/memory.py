"""What moves memory: reductions over each axis, Softmax, norms and transposes; and sorts, sums of prefixes and TopK."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .case import Case, Feed, Tensors, cut, model

_SHARE = 0.85  # of a copy's bandwidth
# 64M elements each, and the axis.
SUMS = [
    ((65536, 1024), 1), ((1024, 65536), 1), ((64, 1048576), 1), ((1024, 65536), 0), ((1048576, 64), 0),
    ((64, 1024, 1024), 1), ((1024, 1024, 64), 1),
]  # fmt: skip
MOMENTS = [((65536, 1024), 1), ((1024, 65536), 0), ((64, 1024, 1024), 1)]
ROWS = [((16384, 4096), 1), ((65536, 1024), 1), ((64, 1024, 1024), 1)]
TRANSPOSES = [
    ((8192, 8192), (1, 0)), ((256, 512, 512), (0, 2, 1)), ((256, 512, 512), (2, 0, 1)), ((256, 512, 512), (1, 0, 2)),
    ((1048576, 64), (1, 0)),
]  # fmt: skip
TOP = [((64, 4096), 100), ((64, 65536), 100), ((64, 128000), 50), ((1, 1 << 20), 100)]
SORTS = [(64, 4096), (64, 65536), (1, 1 << 20)]
PREFIXES = [((16384, 4096), 1), ((64, 65536), 1), ((1, 1 << 20), 1), ((4096, 16384), 0)]


def memory_cases(most: int | None) -> list[Case]:
    """All of them; with ``most`` at sizes for a processor."""
    sums = [moment("Sum", cut(s, most), axis) for s, axis in SUMS]
    moments = [moment(name, cut(s, most), axis) for name in ("Mean", "Variance") for s, axis in MOMENTS]
    rows = [softmax(cut(s, most), axis) for s, axis in ROWS]
    norms = [layer_norm(cut(s, most), dtype) for s, axis in ROWS[:2] for dtype in ("f32", "f16")]
    turned = [transpose(cut(s, most), order) for s, order in TRANSPOSES]
    tops = [top(cut(s, most), k if most is None else 3) for s, k in TOP]
    sorts = [top(cut(s, most), cut(s, most)[-1]) for s in SORTS]
    return [*sums, *moments, *rows, *norms, *turned, *tops, *sorts, *(prefix(cut(s, most), a) for s, a in PREFIXES)]


# ---- reductions -----------------------------------------------------------------------------------------------------


def moment(name: str, shape: tuple[int, ...], axis: int) -> Case:
    """Sum, Mean or Variance over an axis."""
    y = Feed(tuple(1 if k == axis else d for k, d in enumerate(shape)))
    peer = partial(_MOMENTS[name], axis=axis)
    return _case(f"{name} {_text(shape)}, axis {axis}", partial(_moment, name, axis), Feed(shape), y, peer)


def _moment(name: str, axis: int, x: Feed, y: Feed) -> onnx.ModelProto:
    axes = numpy_helper.from_array(np.array([axis]), "axes")
    if name == "Variance":
        nodes = [
            helper.make_node("ReduceMean", ["x", "axes"], ["mean"]),
            helper.make_node("Sub", ["x", "mean"], ["d"]),
            helper.make_node("Mul", ["d", "d"], ["square"]),
            helper.make_node("ReduceMean", ["square", "axes"], ["y"]),
        ]
    else:
        nodes = [helper.make_node(f"Reduce{name}", ["x", "axes"], ["y"])]
    return model(nodes, {"x": x}, {"y": y}, [axes], 20)


def _sum(torch: Any, tensors: Tensors, *, axis: int) -> Sequence[Any]:
    return [tensors["x"].sum(axis, keepdim=True)]


def _mean(torch: Any, tensors: Tensors, *, axis: int) -> Sequence[Any]:
    return [tensors["x"].mean(axis, keepdim=True)]


def _variance(torch: Any, tensors: Tensors, *, axis: int) -> Sequence[Any]:
    return [tensors["x"].var(axis, correction=0, keepdim=True)]


_MOMENTS = {"Sum": _sum, "Mean": _mean, "Variance": _variance}


# ---- rows -----------------------------------------------------------------------------------------------------------


def softmax(shape: tuple[int, ...], axis: int) -> Case:
    """Softmax along an axis."""
    peer = partial(_softmax, axis=axis)
    return _case(f"Softmax {_text(shape)}, axis {axis}", partial(_plain, "Softmax", {"axis": axis}), *_two(shape), peer)


def _softmax(torch: Any, tensors: Tensors, *, axis: int) -> Sequence[Any]:
    return [tensors["x"].softmax(axis)]


def layer_norm(shape: tuple[int, ...], dtype: str) -> Case:
    """LayerNormalization of the last axis."""
    return _case(f"Layer norm {_text(shape)} {dtype}", _layer_norm, *_two(shape, dtype), _layer_norm_peer)


def _layer_norm(x: Feed, y: Feed) -> onnx.ModelProto:
    row = np.linspace(0.5, 1.5, x.shape[-1]).astype({"f16": np.float16, "f32": np.float32}[x.dtype])
    nodes = [helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], axis=-1, epsilon=1e-5)]
    constants = [numpy_helper.from_array(a, n) for n, a in (("scale", row), ("bias", row[::-1].copy()))]
    return model(nodes, {"x": x}, {"y": y}, constants, 20)


def _layer_norm_peer(torch: Any, tensors: Tensors) -> Sequence[Any]:
    x, scale, bias = (tensors[n] for n in ("x", "scale", "bias"))
    return [torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias, 1e-5)]


def transpose(shape: tuple[int, ...], order: tuple[int, ...]) -> Case:
    """Axes in another order."""
    y = Feed(tuple(shape[k] for k in order))
    name = f"Transpose {_text(shape)} {''.join(map(str, order))}"
    return _case(name, partial(_plain, "Transpose", {"perm": order}), Feed(shape), y, partial(_permuted, order=order))


def _permuted(torch: Any, tensors: Tensors, *, order: tuple[int, ...]) -> Sequence[Any]:
    return [tensors["x"].permute(order).contiguous()]


# ---- order ----------------------------------------------------------------------------------------------------------


def top(shape: tuple[int, ...], k: int) -> Case:
    """The largest elements of rows; all of them are a sort."""
    width = shape[-1]
    name = f"Sort {_text(shape)}" if k == width else f"TopK {_text(shape)}, {k}"
    peers = {"topk": partial(_top, k=k)} if k < width else {"sort": _sort}
    make = partial(_top_model, Feed(shape), k)
    return Case(name, make, {"x": Feed(shape)}, peers, partial(_top, k=k), 1.0, seen=_chosen)


def _top_model(x: Feed, k: int) -> onnx.ModelProto:
    count = numpy_helper.from_array(np.array([k]), "k")
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=-1)
    y = (*x.shape[:-1], k)
    return model([node], {"x": x}, {"values": Feed(y), "indices": Feed(y, "i64")}, [count], 20)


def _top(torch: Any, tensors: Tensors, *, k: int) -> Sequence[Any]:
    return list(tensors["x"].topk(k, -1))


def _sort(torch: Any, tensors: Tensors) -> Sequence[Any]:
    return list(tensors["x"].sort(dim=-1, descending=True))


def _chosen(torch: Any, tensors: Tensors, outputs: Sequence[Any]) -> Sequence[Any]:
    """The values, and the elements at the indices: equal elements may come in any order in PyTorch."""
    values, indices = outputs
    return [values, tensors["x"].gather(-1, indices.clamp(0, tensors["x"].shape[-1] - 1))]


def prefix(shape: tuple[int, ...], axis: int) -> Case:
    """Sums of prefixes."""
    peers = {"cumsum": partial(_prefix_peer, axis=axis)}
    make = partial(_prefix, axis, *_two(shape))
    return Case(f"CumSum {_text(shape)}, axis {axis}", make, {"x": Feed(shape)}, peers, peers["cumsum"], 1.0)


def _prefix(axis: int, x: Feed, y: Feed) -> onnx.ModelProto:
    along = numpy_helper.from_array(np.array(axis), "axis")
    return model([helper.make_node("CumSum", ["x", "axis"], ["y"])], {"x": x}, {"y": y}, [along], 20)


def _prefix_peer(torch: Any, tensors: Tensors, *, axis: int) -> Sequence[Any]:
    return [tensors["x"].cumsum(axis)]


# ---- all ------------------------------------------------------------------------------------------------------------


def _case(name: str, make: Any, x: Feed, y: Feed, peer: Any) -> Case:
    """What has to reach a share of the copy's bandwidth."""
    return Case(
        name, partial(make, x, y), {"x": x}, {"eager": peer}, peer, _SHARE, moved=x.bytes + y.bytes, constants=True
    )


def _plain(kind: str, attributes: dict[str, Any], x: Feed, y: Feed) -> onnx.ModelProto:
    return model([helper.make_node(kind, ["x"], ["y"], **attributes)], {"x": x}, {"y": y}, opset=20)


def _two(shape: tuple[int, ...], dtype: str = "f32") -> tuple[Feed, Feed]:
    return Feed(shape, dtype), Feed(shape, dtype)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(
        f"{d >> 20}M" if d >= 1 << 20 else f"{d >> 10}k" if d >= 4096 and d % 1024 == 0 else str(d) for d in shape
    )
