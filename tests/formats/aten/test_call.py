"""What the functions of the table compute beside PyTorch, by the interpreter; skipped where there is no PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from torshc.passes.interpret import run_graph

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402  # after the skip

from torshc.formats.aten import CALLS, decompositions, read_program  # noqa: E402
from torshc.formats.aten.call import name_of  # noqa: E402
from torshc.formats.aten.random import is_drawn  # noqa: E402

F = torch.nn.functional
aten = torch.ops.aten


def floats(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=torch.Generator().manual_seed(seed))


def ints(count: int, *shape: int, dtype: Any = torch.int64, seed: int = 1) -> Any:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, Y, POSITIVE, ROW = floats(3, 5), floats(3, 5, seed=2), floats(3, 5, low=0.2), floats(5, seed=3)
IMAGES, CUBE, SMALL = floats(2, 4, 7, 6), floats(2, 3, 4), floats(3, 5, low=-0.9, high=0.9)
N, J, B = ints(9, 3, 5) - 4, ints(5, 3, 5, seed=4) + 1, ints(2, 3, 5).bool()
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan")], dtype=torch.float64)
KERNEL, BIAS = floats(6, 2, 3, 3, seed=5), floats(6, seed=6)

Case = tuple[Callable[..., Any], tuple[Any, ...]]
UNARY = [
    "abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "neg", "round", "sigmoid", "sin",
    "sinh", "tan", "tanh", "trunc", "relu", "sign", "exp2",
]  # fmt: skip


def _cases() -> dict[str, Case]:
    c: dict[str, Case] = {}
    c |= {name: (getattr(aten, name), (X,)) for name in UNARY}
    c |= {
        f"{name} of what is special": (getattr(aten, name), (SPECIAL,)) for name in ("relu", "sign", "isnan", "isinf")
    }
    c |= {name: (getattr(aten, name), (SMALL,)) for name in ("acos", "asin", "atanh")}
    c |= {name: (getattr(aten, name), (POSITIVE,)) for name in ("log", "log2", "log10", "log1p", "rsqrt", "sqrt")}
    c |= {
        f"{name} of ints": (getattr(aten, name), (N,))
        for name in ("abs", "neg", "ceil", "floor", "sin", "isnan", "isinf")
    }
    c |= {f"{name} of ints": (getattr(aten, name), (J,)) for name in ("reciprocal", "rsqrt", "log")}
    c["acosh"] = aten.acosh, (POSITIVE + 1,)
    c["reciprocal"] = aten.reciprocal, (POSITIVE,)
    c["silu"] = aten.silu, (X,)
    for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
        c[name] = getattr(aten, name), (X, ROW)
        c[f"{name} of a float and an int"] = getattr(aten, name), (X, N)
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "pow", "eq", "ne", "lt", "le", "gt", "ge"):
        c[f"{name} of a number"] = getattr(aten, name), (POSITIVE, 1.5)
        c[f"{name} of an int and a number"] = getattr(aten, name), (J, 2)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        c[name] = getattr(aten, name), (N, J)
        c[f"{name} of an int and a float"] = getattr(aten, name), (N, 0.5)
    for name in ("logical_and", "logical_or", "logical_xor"):
        c[name] = getattr(aten, name), (N, B)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        c[name] = getattr(aten, name), (N, J)
        c[f"{name} of bools"] = getattr(aten, name), (B, ~B)
        c[f"{name} of a number"] = getattr(aten, name), (N, 3)
    c["add of bools"], c["mul of bools"] = (aten.add, (B, ~B)), (aten.mul, (B, ~B))
    for name in ("add", "sub", "mul", "div"):
        c[f"{name} Scalar"] = getattr(aten, name).Scalar, (X, 2)
    c["div Scalar_mode"] = lambda x: aten.div.Scalar_mode(x, 0.3, rounding_mode="floor"), (X,)
    c["convert"] = lambda i: torch.ops.prims.convert_element_type(i, torch.float64), (N,)
    c["add alpha"] = lambda x, y: aten.add(x, y, alpha=3), (X, Y)
    c["sub alpha"] = lambda x, y: aten.sub(x, y, alpha=0.5), (X, Y)
    c["rsub"] = lambda x, y: aten.rsub(x, y), (X, Y)
    c["rsub of a number"] = lambda x: aten.rsub(x, 2, alpha=2), (X,)
    c["div of ints"] = aten.div, (N, J)
    for mode in ("floor", "trunc"):
        c[f"div {mode}"] = lambda x, y, mode=mode: aten.div(x, y, rounding_mode=mode), (X, Y)
        c[f"div {mode} of ints"] = lambda x, y, mode=mode: aten.div(x, y, rounding_mode=mode), (N, J)
        c[f"div {mode} of a number"] = lambda x, mode=mode: aten.div(x, 0.1, rounding_mode=mode), (POSITIVE,)
    c["floor_divide"], c["floor_divide of ints"] = (aten.floor_divide, (X, Y)), (aten.floor_divide, (N, J))
    c["remainder"], c["remainder of ints"] = (aten.remainder, (X, Y)), (aten.remainder, (N, J))
    c["remainder of a number by a tensor"] = lambda y: aten.remainder(7, y), (J,)
    c["fmod"], c["fmod of ints"] = (aten.fmod, (X, Y)), (aten.fmod, (N, J))
    c["pow of tensors"], c["pow of a base"] = (aten.pow, (POSITIVE, Y)), (lambda y: aten.pow(2.0, y), (Y,))
    c["square by pow"] = lambda x: aten.pow(x, 2), (X,)
    c["clamp"], c["clamp_min"] = (lambda x: aten.clamp(x, -0.5, 0.5), (X,)), (lambda x: aten.clamp_min(x, 0.1), (X,))
    c["clamp_max"], c["clamp of NaN"] = (
        (lambda x: aten.clamp_max(x, 0.1), (X,)),
        (lambda x: aten.clamp(x, -1, 1), (SPECIAL,)),
    )
    c["clamp by tensors"] = lambda x, y: aten.clamp(x, y, y + 1), (X, ROW)
    c["hardtanh"], c["relu6"] = (aten.hardtanh, (X,)), (lambda x: aten.hardtanh(x, 0.0, 6.0), (X * 5,))
    c["where"] = aten.where, (B, X, ROW)
    c["gelu"], c["gelu tanh"] = (F.gelu, (X,)), (lambda x: F.gelu(x, approximate="tanh"), (X,))
    c["leaky_relu"], c["elu"] = (lambda x: F.leaky_relu(x, 0.2), (X,)), (lambda x: F.elu(x, 0.5), (X,))
    c["selu"] = F.selu, (X,)
    c["to float"], c["to int"] = (lambda x: x.float(), (X,)), (lambda x: x.int(), (X,))
    c["to bool"], c["of bool"] = (lambda x: x.bool(), (N,)), (lambda x: x.double(), (B,))
    c["logical_not"], c["bitwise_not"], c["bitwise_not of bools"] = (
        (aten.logical_not, (N,)),
        (aten.bitwise_not, (N,)),
        (aten.bitwise_not, (B,)),
    )
    return c | _seen(_moved()) | _reduced() | _indexed() | _layers()


def _seen(cases: dict[str, Case]) -> dict[str, Case]:
    """Views with something computed of them, or PyTorch would make them."""

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        def cosines(*inputs: Any) -> Any:
            made = function(*inputs)
            return [y.cos() for y in (made if isinstance(made, list) else [made])]

        return cosines

    return {name: (seen(function), inputs) for name, (function, inputs) in cases.items()}


def _moved() -> dict[str, Case]:
    c: dict[str, Case] = {}
    c["view"], c["squeeze"] = (
        (lambda x: x.view(5, 3), (X,)),
        (lambda x: x.unsqueeze(1).squeeze(1).unsqueeze(0).squeeze(), (X,)),
    )
    c["squeeze dims"] = lambda x: aten.squeeze.dims(x[None, :, None], [0, 2]), (X,)
    c["expand"], c["permute"] = (lambda x: x.expand(2, -1, 5), (X,)), (lambda x: x.permute(2, 0, -2), (CUBE,))
    c["transpose"], c["t"] = (lambda x: x.transpose(0, -1), (CUBE,)), (lambda x: x.t(), (X,))
    c["slice"] = lambda x: x[:, 1:4:2], (X,)
    c["slice beyond"], c["slice from the end"] = (lambda x: x[:, -100:100], (X,)), (lambda x: x[-2:, :-1], (X,))
    c["select"], c["select from the end"] = (lambda x: x[:, 1], (CUBE,)), (lambda x: x.select(2, -1), (CUBE,))
    c["slice_backward"] = lambda g: aten.slice_backward(g, [3, 9], 1, 1, 9, 2), (X[:, :4],)
    c["select_backward"] = lambda g: aten.select_backward(g, [2, 3, 5], 0, 1), (X,)
    c["slice_scatter"] = lambda x, y: aten.slice_scatter(x, y[:, :2], 1, 1, 3), (X, Y)
    c["slice_scatter in steps"] = lambda x, y: aten.slice_scatter(x, y[:, :2], 1, 1, 4, 2), (X, Y)
    c["slice_scatter of all"] = lambda x, y: aten.slice_scatter(x, y, 1), (X, Y)
    c["select_scatter"] = lambda x, y: aten.select_scatter(x, y, 0, -1), (X, ROW)
    c["split"] = lambda x: [*x.split(2, 1)], (X,)
    c["split_with_sizes"], c["unbind"] = (lambda x: [*x.split([1, 4], 1)], (X,)), (lambda x: [*x.unbind(1)], (CUBE,))
    c["cat"], c["stack"] = (lambda x, y: torch.cat([x, y], -1), (X, Y)), (lambda x, y: torch.stack([x, y], 1), (X, Y))
    c["cat of two types"] = lambda x, i: torch.cat([x, i]), (X, N)
    c["flip"], c["repeat"] = (lambda x: x.flip(0, -1), (CUBE,)), (lambda x: x.repeat(2, 1, 3), (X,))
    c["roll"], c["roll of all"] = (lambda x: x.roll((1, -2), (0, 1)), (X,)), (lambda x: x.roll(4), (X,))
    c["pad"], c["pad below 0"] = (
        (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (X,)),
        (lambda x: F.pad(x, (-1, 2)), (X,)),
    )
    for k in (-1, 0, 2):
        c[f"diagonal {k}"] = lambda x, k=k: x.diagonal(k, 1, 2), (CUBE,)
        c[f"tril {k}"], c[f"triu {k}"] = (lambda x, k=k: x.tril(k), (CUBE,)), (lambda x, k=k: x.triu(k), (CUBE,))
    c["copy"] = lambda x, y: aten.copy(x, y), (X, ROW)
    c["clone"] = lambda x: x.clone().detach() + 0, (X,)
    c["full"] = (
        lambda x: [
            torch.full((2, 3), 7),
            torch.full_like(x, 2.5),
            torch.zeros_like(x),
            torch.ones(3),
            x.new_full((2,), 3),
        ],
        (X,),
    )
    c["scalar_tensor"] = lambda x: x + torch.scalar_tensor(2.5), (X,)
    c["arange"] = lambda x: [torch.arange(5), torch.arange(2, 9, 3), torch.arange(0.5, 3.0, 0.4, dtype=x.dtype)], (X,)
    c["eye"] = lambda x: [torch.eye(3, dtype=x.dtype), torch.eye(2, 4)], (X,)
    return c


def _reduced() -> dict[str, Case]:
    c: dict[str, Case] = {}
    for name in ("sum", "mean", "amax", "amin"):
        c[name] = lambda x, name=name: getattr(x, name)(dim=(0, -1)), (CUBE,)
        c[f"{name} kept"] = lambda x, name=name: getattr(x, name)(dim=1, keepdim=True), (CUBE,)
        c[f"{name} of all"] = lambda x, name=name: getattr(x, name)(), (CUBE,)
    c["sum of bools"], c["sum of ints"] = (lambda b: b.sum(1), (B,)), (lambda i: i.int().sum(0), (N,))
    c["prod"], c["prod of all"] = (lambda x: x.prod(1), (X,)), (lambda x: x.prod(), (X,))
    c["max"], c["min"] = (lambda x: [x.max(), *x.max(1)], (X,)), (lambda x: [x.min(), *x.min(1, keepdim=True)], (X,))
    c["any"] = lambda x: [(x > 1.5).any(), (x > 1.5).any(1), (x > 1.5).any((0, 1))], (X,)
    c["all"] = lambda x: [(x > -1.5).all(), (x > -1.5).all(1), (x > 0).all(0, keepdim=True)], (X,)
    c["argmax"] = lambda x: [x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)], (X,)
    c["var"] = lambda x: [x.var(), x.var(1, correction=0), x.std(0, keepdim=True)], (X,)
    c["var_mean"] = lambda x: [*torch.var_mean(x, 1), *torch.var_mean(x, (0, 1), correction=2, keepdim=True)], (X,)
    c["cumsum"], c["cumprod"] = (lambda x: [x.cumsum(1), x.cumsum(-2)], (X,)), (lambda x: x.cumprod(0), (X,))
    c["cumsum of ints"] = lambda i: i.int().cumsum(1), (N,)
    c["sort stable"] = lambda x: [*torch.sort(x, stable=True, dim=0)], (X,)
    c["topk"], c["sort"] = (
        (lambda x: [*x.topk(2, 1), *x.topk(1, 0, largest=False)], (X,)),
        (lambda x: [*x.sort(1), *x.sort(0, descending=True)], (X,)),
    )
    c["mm"], c["bmm"] = (lambda x, y: x @ y.t(), (X, Y)), (lambda x: x @ x.mT, (CUBE,))
    c["mv"], c["dot"] = (lambda x, v: x @ v, (X, ROW)), (lambda v: v @ (v + 1), (ROW,))
    c["addmm"] = (
        lambda b, x, y: [torch.addmm(b, x, y), torch.addmm(b, x, y, beta=0.5, alpha=2)],
        (floats(3), X, Y.t().contiguous()),
    )
    c["baddbmm"] = lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=2, alpha=0.5), (CUBE,)
    c["softmax"], c["log_softmax"] = (lambda x: F.softmax(x, 1), (X,)), (lambda x: F.log_softmax(x, 0), (X,))
    return c


def _indexed() -> dict[str, Case]:
    c: dict[str, Case] = {}
    i, k = ints(3, 4), ints(4, 4, seed=8)
    c["embedding"] = F.embedding, (ints(3, 2, 4), X)
    c["embedding_dense_backward"] = (
        lambda g, at: [aten.embedding_dense_backward(g, at, 6, p, False) for p in (-1, 2)],
        (CUBE, ints(6, 2, 3)),
    )
    c["index_select"], c["gather"] = (
        (lambda x, i: x.index_select(0, i), (X, i)),
        (lambda x, j: x.gather(1, j - 1), (X, J)),
    )
    c["gather of fewer rows"] = lambda x, j: x.gather(1, j[:2, :2] - 1), (X, J)
    c["scatter"] = lambda x, y: x.scatter(1, torch.tensor([[1, 0], [2, 4]]), y), (X, Y)
    c["scatter of a number"] = lambda x, j: x.scatter(1, j - 1, 2.5), (X, J)
    c["scatter_add"] = lambda x, j, y: x.scatter_add(1, j - 1, y), (X, J, Y)
    for kind in ("sum", "prod", "amax", "amin"):
        c[f"scatter_reduce {kind}"] = lambda x, j, y, kind=kind: x.scatter_reduce(1, j - 1, y, kind), (X, J, Y)
    c["index"] = lambda x, i: [x[i], x[:, i], x[i[:, None], i]], (X, i)
    c["index apart"] = lambda x, i, k: [x[i % 2, :, k], x[:, i, k]], (CUBE, i, k)
    c["index_put"] = lambda x, i, y: x.index_put((i,), y[:1].expand(4, 5), accumulate=True), (X, i, Y)
    c["index_put behind"] = (
        lambda x, i, k: aten.index_put(x, [None, i, k], torch.tensor(2.0, dtype=x.dtype)),
        (CUBE, i, k),
    )
    c["index_put apart"] = (
        lambda x, i, k: aten.index_put(x, [i % 2, None, k], x[0, :, :1].mT.expand(4, 3), True),
        (CUBE, i, k),
    )
    c["masked_fill"] = lambda x, b: x.masked_fill(b, -1.0), (X, B)
    c["index_put of a mask"] = lambda x, b: x.index_put((b,), torch.tensor(0.5, dtype=x.dtype)), (X, B)
    return c


def _layers() -> dict[str, Case]:
    c: dict[str, Case] = {}
    c["convolution"] = lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2), 2), (IMAGES, KERNEL, BIAS)
    c["convolution 1d"] = lambda x: F.conv1d(x, x[:, :, :2]), (CUBE,)
    c["convolution transposed"] = lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1, 2), (IMAGES, floats(4, 3, 3, 3))
    windows = {
        "": ([1, 1], [1, 1], [1, 1], False, [0, 0], 2), " in steps": ([2, 2], [1, 0], [1, 2], False, [0, 0], 2),
        " transposed": ([2, 2], [1, 1], [1, 1], True, [1, 1], 2),
    }  # fmt: skip
    for name, window in windows.items():
        w = floats(4, 3, 3, 3) if window[3] else KERNEL

        def gradients(x: Any, w: Any, window: Any = window) -> Any:
            y = aten.convolution(x, w, None, *window)
            return [*aten.convolution_backward(y.cos(), x, w, [y.shape[1]], *window, [True, True, True])]

        c[f"convolution_backward{name}"] = gradients, (IMAGES, w)
    c["convolution_backward of weights"] = (
        lambda x, w: aten.convolution_backward(
            F.conv2d(x, w, groups=2), x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2, [False, True, False]
        )[1],
        (IMAGES, KERNEL),
    )
    c["max_pool"] = lambda x: [*aten.max_pool2d_with_indices(x, [3, 2], [2, 2], [1, 1])], (IMAGES,)
    c["max_pool of an image"] = lambda x: [*aten.max_pool2d_with_indices(x[0], 2, ceil_mode=True)], (IMAGES,)

    def pooled_back(x: Any) -> Any:
        y, at = aten.max_pool2d_with_indices(x, [3, 3], [1, 2], [1, 1])
        return aten.max_pool2d_with_indices_backward(y.cos(), x, [3, 3], [1, 2], [1, 1], [1, 1], False, at)

    c["max_pool backward"] = pooled_back, (IMAGES,)
    for pad in (True, False):
        c[f"avg_pool {pad}"] = lambda x, pad=pad: F.avg_pool2d(x, 3, 2, 1, count_include_pad=pad), (IMAGES,)
        c[f"avg_pool backward {pad}"] = (
            lambda x, pad=pad: aten.avg_pool2d_backward(
                F.avg_pool2d(x, 3, 2, 1, count_include_pad=pad).sin(), x, [3, 3], [2, 2], [1, 1], False, pad, None
            ),
            (IMAGES,),
        )
    c["adaptive_avg_pool"] = lambda x: aten._adaptive_avg_pool2d(x, [7, 2]), (IMAGES,)
    c["adaptive_avg_pool backward"] = lambda x: aten._adaptive_avg_pool2d_backward(x[..., :1, :3].sin(), x), (IMAGES,)
    s, t = floats(4, seed=7), floats(4, seed=8, low=0.5)
    c["batch_norm"] = (
        lambda x, s, t: [*aten._native_batch_norm_legit_functional(x, s, t, s, t, True, 0.1, 1e-5)],
        (IMAGES, s, t),
    )
    c["batch_norm of a batch"] = (
        lambda x: [*aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)],
        (IMAGES,),
    )
    c["batch_norm inference"] = (
        lambda x, s, t: aten._native_batch_norm_legit_no_training(x, s, t, s, t, 0.1, 1e-5)[0],
        (IMAGES, s, t),
    )
    c["batch_norm legit"] = (
        lambda x, s, t: aten._native_batch_norm_legit(x, s, t, s + 0, t + 0, False, 0.1, 1e-5)[0],
        (IMAGES, s, t),
    )
    c["native_batch_norm"] = lambda x, s, t: aten.native_batch_norm(x, s, t, s, t, False, 0.1, 1e-5)[0], (IMAGES, s, t)
    c["layer_norm"] = lambda x, s: [*aten.native_layer_norm(x, [3, 4], s, s + 1, 1e-5)], (CUBE, floats(3, 4))
    c["layer_norm plain"] = lambda x: [*aten.native_layer_norm(x, [4], None, None, 1e-5)], (CUBE,)
    c["group_norm"] = lambda x, s: [*aten.native_group_norm(x, s, s + 1, 2, 4, 42, 2, 1e-5)], (IMAGES, s)
    q, k, v = floats(2, 3, 4, 8), floats(2, 3, 6, 8, seed=2), floats(2, 3, 6, 8, seed=3)
    mask = floats(4, 6, seed=4)
    for name, more in {"": {}, " causal": {"is_causal": True}, " scaled": {"scale": 0.3}}.items():

        def attend(q: Any, k: Any, v: Any, more: Any = more) -> Any:
            return [*aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, **more)]

        def back(q: Any, k: Any, v: Any, more: Any = more) -> Any:
            y, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, **more)
            given = 0.0, more.get("is_causal", False)
            rest = {n: m for n, m in more.items() if n != "is_causal"}
            return [
                *aten._scaled_dot_product_flash_attention_for_cpu_backward(y.cos(), q, k, v, y, sums, *given, **rest)
            ]

        c[f"attention{name}"] = attend, (q, k, v)
        c[f"attention backward{name}"] = back, (q, k, v)
        c[f"attention alone{name}"] = lambda q, k, v, more=more: attend(q, k, v, more)[0], (q, k, v)

    def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
        y, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)
        return [y, *aten._scaled_dot_product_flash_attention_for_cpu_backward(
            y.cos(), q, k, v, y, sums, 0.0, False, attn_mask=mask)]  # fmt: skip

    c["attention masked"] = masked, (q, k, v, mask)
    for name, size in {"": [14, 18], " by a fraction": [10, 9], " smaller": [5, 4]}.items():
        c[f"nearest{name}"] = lambda x, size=size: F.interpolate(x, size), (IMAGES,)
        c[f"nearest backward{name}"] = (
            lambda x, size=size: aten.upsample_nearest2d_backward(F.interpolate(x, size).cos(), size, [2, 4, 7, 6]),
            (IMAGES,),
        )
        for corners in (True, False):
            c[f"bilinear{name} {corners}"] = (
                lambda x, size=size, corners=corners: F.interpolate(x, size, mode="bilinear", align_corners=corners),
                (IMAGES,),
            )
            c[f"bilinear backward{name} {corners}"] = (
                lambda x, size=size, corners=corners: aten.upsample_bilinear2d_backward(
                    F.interpolate(x, size, mode="bilinear", align_corners=corners).cos(), size, [2, 4, 7, 6], corners
                ),
                (IMAGES,),
            )
    c["nearest by a factor"] = lambda x: F.interpolate(x, scale_factor=2), (IMAGES,)
    return c


CASES = _cases()


@cache
def traced(function: Callable[..., Any], inputs: tuple[Any, ...], mode: str = "fake") -> Any:
    def listed(*inputs: Any) -> list[Any]:
        made = function(*inputs)
        return [*made] if isinstance(made, list | tuple) else [made]

    return make_fx(listed, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)


def computed(graph: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """The results of a graph by the interpreter."""
    program = read_program(graph)
    given = {}
    for value, port in zip(program.graph.inputs, program.ports, strict=True):
        x = inputs[port.source]
        given[value] = (x if port.order is None else x.permute(port.order)).contiguous().numpy()
    made = [torch.from_numpy(np.array(a)) for a in run_graph(program.graph, given)]
    found = []
    for r in program.results:
        y = inputs[r.argument] if r.output is None else made[r.output]
        y = y if r.order is None else y.permute([*map(r.order.index, range(y.dim()))])
        for step in r.views:
            y = step.target(y, *step.args, **step.kwargs)
        found.append(y)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_pytorchs(name: str) -> None:
    """Sums of some hundred products of f64 (2^-53 each); Resize computes places and weights in f32, as ONNX has it."""
    function, inputs = CASES[name]
    wanted = function(*inputs)
    wanted = [*wanted] if isinstance(wanted, list | tuple) else [wanted]
    found = computed(traced(function, inputs), inputs)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype is want.dtype
        exact = want.dtype is torch.float64 and "bilinear" not in name
        torch.testing.assert_close(
            got, want, rtol=1e-11 if exact else 1e-6, atol=1e-12 if exact else 1e-6, equal_nan=True
        )


def test_every_function_has_a_case() -> None:
    graphs = [traced(*case).graph for case in CASES.values()]
    met = {name_of(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"}
    assert sorted(name for name in CALLS if name not in met and not is_drawn(name)) == sorted(ELSEWHERE)


# Without contents to compare, or made by what AOTAutograd alone does.
ELSEWHERE = [
    "alias.default", "empty.memory_format", "empty_permuted.default", "empty_strided.default",
    "new_empty_strided.default",
]  # fmt: skip
