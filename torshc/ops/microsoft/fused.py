"""Products, convolutions and pools of ONNX Runtime's own domain: with something fused behind, or channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...graph import Value
from ..core.base import operator
from ..core.compose import apply
from ..core.source import SourceNode, Unsupported
from ..nn.conv import Ints
from ..tensor.view import Transpose
from .base import DOMAIN, WINDOW, Contrib, channels_first, channels_last, given, node

_ACTIVATIONS = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",), "Softplus": (), "ThresholdedRelu": ("alpha",), "HardSwish": (), "Gelu": (),
    "Clip": ("low", "high"),
}  # fmt: skip


def activated(source: SourceNode, x: Value, kind: str, parameters: Sequence[float]) -> Value:
    """An activation by its name, with its parameters in ONNX's order; "" for none.

    Raises:
        Unsupported: for one that is not known, or has another number of parameters.
    """
    if not kind:
        return x
    if kind in ("Silu", "SiLU", "Swish"):
        return apply(source.builder, "Swish", x)
    names = _ACTIVATIONS.get(kind)
    if names is None or len(parameters) not in (0, len(names)) or (kind == "Clip" and not parameters):
        raise Unsupported(f"{source.op_type} with activation {kind!r} of {len(parameters)} parameters")
    return apply(source.builder, kind, x, **dict(zip(names, parameters, strict=False)))


# -- products ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FusedProduct(Contrib):
    """Base: alpha * a' @ b', with a' and b' the operands or their last two dimensions flipped.

    Attributes:
        transBatchA, transBatchB: the first dimension of an operand stands before its last, and batches from the second.
    """

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0

    def product(self, source: SourceNode) -> Value:
        b, sides = source.builder, []
        for x, flip, batch in (
            (source.required(0), self.transA, self.transBatchA),
            (source.required(1), self.transB, self.transBatchB),
        ):
            order = list(range(x.type.rank))
            if batch and len(order) > 2:
                order = [*order[1:-1], 0, order[-1]]
            if flip and len(order) > 1:
                order[-2:] = order[:-3:-1]
            sides.append(x if order == sorted(order) else b.one(Transpose(tuple(order)), x))
        out = apply(b, "MatMul", *sides)
        return out if self.alpha == 1.0 else apply(b, "Mul", out, self.alpha)


@operator("FusedMatMul", DOMAIN)
@dataclass(frozen=True)
class FusedMatMul(FusedProduct):
    """MatMul of flipped operands, times alpha."""

    def make(self, source: SourceNode) -> list[Value]:
        return [self.product(source)]


@operator("TransposeMatMul", DOMAIN)
@dataclass(frozen=True)
class TransposeMatMul(FusedMatMul):
    """FusedMatMul's older name."""


def _parameters(alpha: float, beta: float, kind: str) -> list[float]:
    """Parameters of an activation that are attributes; 0 where they are absent, which is then ONNX's default."""
    wanted = len(_ACTIVATIONS.get(kind, ()))
    return [alpha, beta][:wanted] if alpha or beta else []


@operator("FusedMatMulActivation", DOMAIN)
@dataclass(frozen=True)
class FusedMatMulActivation(FusedProduct):
    """FusedMatMul with an activation behind it."""

    activation: str = ""
    activation_alpha: float = 0.0
    activation_beta: float = 0.0
    activation_gamma: float = 0.0
    activation_axis: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        parameters = _parameters(self.activation_alpha, self.activation_beta, self.activation)
        return [activated(source, self.product(source), self.activation, parameters)]


@operator("FusedGemm", DOMAIN)
@dataclass(frozen=True)
class FusedGemm(Contrib):
    """Gemm with an activation behind it."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0
    activation: str = ""
    activation_alpha: float = 0.0
    activation_beta: float = 0.0
    activation_gamma: float = 0.0

    def make(self, source: SourceNode) -> list[Value]:
        out = node(
            source,
            "Gemm",
            source.required(0),
            source.required(1),
            source.input(2),
            **given(self, "alpha", "beta", "transA", "transB"),
        )
        parameters = _parameters(self.activation_alpha, self.activation_beta, self.activation)
        return [activated(source, out, self.activation, parameters)]


# -- convolutions and pools -------------------------------------------------------------------------------------------


@operator("FusedConv", DOMAIN)
@dataclass(frozen=True)
class FusedConv(Contrib):
    """activation(Conv(x, w) + bias + z), bias and z perhaps absent."""

    activation: str = ""
    activation_params: tuple[float, ...] = ()
    auto_pad: str = ""
    dilations: Ints = ()
    group: int = 1
    kernel_shape: Ints = ()
    pads: Ints = ()
    strides: Ints = ()

    def convolved(self, source: SourceNode, x: Value, z: Value | None) -> Value:
        out = node(source, "Conv", x, source.required(1), source.input(2), **given(self, *WINDOW))
        out = out if z is None else apply(source.builder, "Add", out, z)
        return activated(source, out, self.activation, self.activation_params)

    def make(self, source: SourceNode) -> list[Value]:
        return [self.convolved(source, source.required(0), source.input(3))]


@operator("NhwcFusedConv", DOMAIN)
@dataclass(frozen=True)
class NhwcFusedConv(FusedConv):
    """FusedConv with channels last, of weights as Conv has them."""

    def make(self, source: SourceNode) -> list[Value]:
        b, z = source.builder, source.input(3)
        first = None if z is None else channels_first(b, z)
        return [channels_last(b, self.convolved(source, channels_first(b, source.required(0)), first))]


@operator("NhwcConv", DOMAIN)
@dataclass(frozen=True)
class NhwcConv(NhwcFusedConv):
    """Conv with channels last, of weights [M, spatial, C / group] as ONNX Runtime's CUDA kernels take them."""

    def make(self, source: SourceNode) -> list[Value]:
        source.inputs[1] = channels_first(source.builder, source.required(1))
        return super().make(source)


@operator("NhwcMaxPool", DOMAIN)
@dataclass(frozen=True)
class NhwcMaxPool(Contrib):
    """MaxPool of bytes with channels last."""

    floating: ClassVar[bool] = False

    auto_pad: str = ""
    ceil_mode: int = 0
    dilations: Ints = ()
    kernel_shape: Ints = ()
    pads: Ints = ()
    strides: Ints = ()

    def make(self, source: SourceNode) -> list[Value]:
        b, names = source.builder, ("ceil_mode", *(n for n in WINDOW if n != "group"))
        return [channels_last(b, node(source, "MaxPool", channels_first(b, source.required(0)), **given(self, *names)))]


@operator("ConvTransposeWithDynamicPads", DOMAIN)
@dataclass(frozen=True)
class ConvTransposeWithDynamicPads(Contrib):
    """ConvTranspose whose margins are an operand, known when the model is read."""

    auto_pad: str = ""
    dilations: Ints = ()
    group: int = 1
    kernel_shape: Ints = ()
    output_padding: Ints = ()
    strides: Ints = ()

    def make(self, source: SourceNode) -> list[Value]:
        pads = source.ints(2, "the pads of ConvTransposeWithDynamicPads")
        names = ("output_padding", *(n for n in WINDOW if n != "pads"))
        attributes = given(self, *names) | ({} if pads is None else {"pads": pads})
        return [node(source, "ConvTranspose", source.required(0), source.required(1), source.input(3), **attributes)]
