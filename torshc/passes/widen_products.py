"""Let heavy operators of halves compute with f32 where a target has no kernels for halves."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import BF16, F16, F32, as_int
from ..graph import Graph, Node, Patch, Value
from ..ops.math.linalg import MatMul
from ..ops.math.pointwise import Cast
from ..ops.nn.attention import Attention
from ..ops.nn.conv import Conv
from .half_products import SHALLOW
from .manager import graph_pass
from .walk import Site, walk

_HALVES = (F16, BF16)
_PRODUCTS = ("gemm", "conv", "conv_transpose", "attention")
PICTURE = (3, 4)  # channels
_EVERYWHERE = ("recurrent",)  # no target has kernels of halves for these


@graph_pass("widen_products")
def widen_products(graph: Graph, options: CompileOptions, *, features: Features, products: bool = True) -> bool:
    """Products, convolutions and attention of f16 or bf16 read f32, and their results are rounded to halves.

    A product of two halves is exact in f32 and sums were f32 before: no result changes but by the order of its sum.
    Constants are widened here, so they take twice the memory. Where a target has `BF16_WEIGHTS`, constant matrices of
    bf16 stay as they are, in 1x1 convolutions too; with `BF16_PRODUCTS` so does what they are multiplied with, and with
    `BF16_CONVOLUTIONS` other convolutions without groups or depthwise,
    and with `BF16_TILES` attention and convolutions of pictures read it. Recurrent cells of
    halves, for which no target has kernels, are widened everywhere; what they carry from step to step stays f32.

    Args:
        products: False widens recurrent cells only.

    Before::

        %2 = MatMul(%0, @1:f16[16, 9]) : f16[4, 9]

    After::

        %3 = Cast(%0) : f32[4, 16]
        %5 = MatMul(%3, @4:f32[16, 9]) : f32[4, 9]
        %6 = Cast[to=f16](%5) : f16[4, 9]
    """
    families = _EVERYWHERE + (_PRODUCTS if products and Feature.HALF_PRODUCTS not in features else ())
    made: dict[Value, Value] = {}

    def rule(site: Site) -> Patch | None:
        node, op = site.node, site.node.op
        if op.family not in families or not any(v.dtype in _HALVES for v in node.operands):
            return None
        if isinstance(op, MatMul | Conv | Attention) and _stays(node, features):
            inputs = list(node.inputs)
            if node.operands[0].dtype is BF16 and Feature.BF16_PRODUCTS not in features:
                inputs[0] = _widen_value(node.operands[0], site, made)
            elif op.out == F32.name:
                return None
            op = dataclasses.replace(op, out=F32.name)
        else:
            if getattr(op, "out", ""):
                op = dataclasses.replace(op, out="")  # type: ignore[call-arg]  # those with the field
            inputs = [v if v is None or v.dtype not in _HALVES else _widen_value(v, site, made) for v in node.inputs]
        results = site.builder.add(op, inputs)
        return site.replace(
            *(
                new if new.dtype is old.dtype else site.builder.one(Cast(to=old.dtype), new)
                for old, new in zip(node.outputs, results, strict=True)
            )
        )

    return walk(graph, rule, "widen_products")


def _stays(node: Node, features: Features) -> bool:
    """Whether attention, a product or a convolution with constants has a kernel of bf16, or of weights of bf16.

    Short sums are left out, but for pictures, whose few channels tiles take as they take those of a row of pixels.
    """
    x, w, op = *node.operands[:2], node.op
    if isinstance(op, Attention):
        return x.dtype is BF16 and Feature.BF16_TILES in features
    if x.dtype not in (BF16, F32) or w.dtype is not BF16 or w.const is None or w.type.rank < 2:
        return False
    if isinstance(op, Conv):
        columns, depth, *kernel = w.const.shape
        plain = {*kernel} == {1} == {*op.strides} and all(as_int(p) == 0 for p in op.pads)
        wanted = Feature.BF16_WEIGHTS if plain else Feature.BF16_CONVOLUTIONS
        depthwise = op.group == columns and depth == 1 and as_int(x.shape[1]) == columns
        if depthwise and len(kernel) == 2 and Feature.BF16_CONVOLUTIONS in features:
            return bool(np.isfinite(w.const.astype(F32.numpy)).all())
        fits = op.group == 1 and len(kernel) <= 2
        if depth in PICTURE and fits and len(kernel) == 2 and Feature.BF16_TILES in features:
            return True
    else:
        depth, columns = w.const.shape[-2:]
        wanted, fits = Feature.BF16_WEIGHTS, True
    return bool(fits and wanted in features and depth >= SHALLOW and columns > 1)


def _widen_value(v: Value, site: Site, made: dict[Value, Value]) -> Value:
    """A value as f32; one copy for all nodes that read it."""
    if v not in made:
        if v.const is not None:
            made[v] = site.graph.constant(v.const.astype(F32.numpy), v.name)
        else:
            made[v] = site.builder.one(Cast(to=F32), v)
    return made[v]
