"""Products, convolutions and pools of ONNX Runtime's own domain: with something fused behind, or channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ..core.composite import composite
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_named, read_node
from .base import DOMAIN, Convolution, Window, put_channels_first, put_channels_last

Floats = tuple[float, ...]
Ints = tuple[int, ...]

_ACTIVATIONS = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",), "Softplus": (), "ThresholdedRelu": ("alpha",), "HardSwish": (), "Gelu": (),
    "Clip": ("low", "high"),
}  # fmt: skip


def activated(x: Tensor, kind: str, parameters: Sequence[float]) -> Tensor:
    """An activation by its name, with its parameters in ONNX's order; "" for none.

    Raises:
        Unsupported: for one that is not known, or has another number of parameters.
    """
    if not kind:
        return x
    if kind in ("Silu", "SiLU", "Swish"):
        return apply_named("Swish", x)
    names = _ACTIVATIONS.get(kind)
    if names is None or len(parameters) not in (0, len(names)) or (kind == "Clip" and not parameters):
        raise Unsupported(f"activation {kind!r} of {len(parameters)} parameters")
    return apply_named(kind, x, **dict(zip(names, parameters, strict=False)))


# -- products ---------------------------------------------------------------------------------------------------------


@composite("FusedMatMul", DOMAIN)
def fused_mat_mul(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha * a' @ b', with a' and b' the operands or their last two dimensions flipped.

    transBatchA, transBatchB: the first dimension of an operand stands before its last, and batches from the second.
    """
    out = _flip_axes(a, transA, transBatchA) @ _flip_axes(b, transB, transBatchB)
    return out if alpha == 1.0 else out * alpha


def _flip_axes(x: Tensor, flip: int, batch: int) -> Tensor:
    order = list(range(x.rank))
    if batch and len(order) > 2:
        order = [*order[1:-1], 0, order[-1]]
    if flip and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else x.transpose(*order)


composite("TransposeMatMul", DOMAIN)(fused_mat_mul)  # its older name


def _activate(x: Tensor, alpha: float, beta: float, kind: str) -> Tensor:
    """An activation whose parameters are attributes; 0 where they are absent, which is then ONNX's default."""
    wanted = len(_ACTIVATIONS.get(kind, ()))
    return activated(x, kind, [alpha, beta][:wanted] if alpha or beta else [])


@composite("FusedMatMulActivation", DOMAIN)
def fused_mat_mul_activation(
    a: Tensor, b: Tensor, *, activation: str = "", activation_alpha: float = 0.0, activation_beta: float = 0.0,
    activation_gamma: float = 0.0, activation_axis: int = 0, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    """FusedMatMul with an activation behind it."""
    out = fused_mat_mul(
        a, b, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB
    )
    return _activate(out, activation_alpha, activation_beta, activation)


@composite("FusedGemm", DOMAIN)
def fused_gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "", activation_alpha: float = 0.0,
    activation_beta: float = 0.0, activation_gamma: float = 0.0, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """Gemm with an activation behind it."""
    out = read_node("Gemm", a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activate(out, activation_alpha, activation_beta, activation)


# -- convolutions and pools -------------------------------------------------------------------------------------------


@composite("FusedConv", DOMAIN)
def fused_conv(
    x: Tensor, w: Tensor, bias: Tensor | None = None, z: Tensor | None = None, *, activation: str = "",
    activation_params: Floats = (), **form: Unpack[Convolution],
) -> Tensor:  # fmt: skip
    """activation(Conv(x, w) + bias + z)."""
    out = read_node("Conv", x, w, bias, **form)
    return activated(out if z is None else out + z, activation, activation_params)


@composite("NhwcFusedConv", DOMAIN)
def nhwc_fused_conv(
    x: Tensor, w: Tensor, bias: Tensor | None = None, z: Tensor | None = None, *, activation: str = "",
    activation_params: Floats = (), **form: Unpack[Convolution],
) -> Tensor:  # fmt: skip
    """FusedConv with channels last, of weights as Conv has them."""
    z = None if z is None else put_channels_first(z)
    y = fused_conv(
        put_channels_first(x), w, bias, z, activation=activation, activation_params=activation_params, **form
    )
    return put_channels_last(y)


@composite("NhwcConv", DOMAIN)
def nhwc_conv(
    x: Tensor, w: Tensor, bias: Tensor | None = None, z: Tensor | None = None, *, activation: str = "",
    activation_params: Floats = (), **form: Unpack[Convolution],
) -> Tensor:  # fmt: skip
    """NhwcFusedConv of weights [M, spatial, C / group], as ONNX Runtime's CUDA kernels take them."""
    return nhwc_fused_conv(
        x, put_channels_first(w), bias, z, activation=activation, activation_params=activation_params, **form
    )


@composite("NhwcMaxPool", DOMAIN, floats=False)
def nhwc_max_pool(x: Tensor, *, ceil_mode: int = 0, **form: Unpack[Window]) -> Tensor:
    """MaxPool of bytes with channels last."""
    return put_channels_last(read_node("MaxPool", put_channels_first(x), ceil_mode=ceil_mode, **form))


@composite("ConvTransposeWithDynamicPads", DOMAIN)
def conv_transpose_with_dynamic_pads(
    source: SourceNode, x: Tensor, w: Tensor, pads: Tensor | None = None, bias: Tensor | None = None, *,
    auto_pad: str = "", dilations: Ints = (), group: int = 1, kernel_shape: Ints = (), output_padding: Ints = (),
    strides: Ints = (),
) -> Tensor:  # fmt: skip
    """ConvTranspose whose margins are an operand, known when the model is read."""
    margins = source.ints(2, "the pads of ConvTransposeWithDynamicPads") or ()
    return read_node(
        "ConvTranspose", x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=margins, strides=strides,
    )  # fmt: skip
