"""Networks of other kinds, for what no model of ours was made to try."""

from __future__ import annotations

import importlib
from typing import Any

from .networks import SQUARE, Lesson, mask, module

_NOISE = (2, 3, 16, 12)


def _drawn(torch: Any, number: int, target: tuple[int, ...] | int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    """Normal numbers by name; the target has such dimensions, or is of so many classes for each row of the first."""
    draws = torch.Generator().manual_seed(number)
    found = {n: torch.randn(dims, generator=draws) for n, dims in shapes.items()}
    if isinstance(target, int):
        found["target"] = torch.randint(0, target, (next(iter(shapes.values()))[0],), generator=draws)
    else:
        found["target"] = torch.randn(target, generator=draws)
    return found


def _unet(torch: Any) -> Any:
    """With normalised double convolutions, transposed convolutions, and skips; a class for each pixel."""
    nn = torch.nn

    def double(c: int, f: int) -> Any:
        layers = [nn.Conv2d(c, f, 3, padding=1), nn.BatchNorm2d(f), nn.LeakyReLU(0.1)]
        return nn.Sequential(*layers, nn.Conv2d(f, f, 3, padding=1), nn.BatchNorm2d(f), nn.ReLU())

    parts = {
        "a": double(3, 12), "b": double(12, 20), "c": double(20, 36),
        "up": nn.ConvTranspose2d(36, 20, 2, 2), "d": double(40, 20),
        "over": nn.ConvTranspose2d(20, 12, 3, 2, 1, 1), "e": double(24, 12), "last": nn.Conv2d(12, 4, 1),
    }  # fmt: skip

    def forward(own: Any, x: Any) -> Any:
        pool = torch.nn.functional.max_pool2d
        a = own.a(x)
        b = own.b(pool(a, 2))
        d = own.d(torch.cat([own.up(own.c(pool(b, 2))), b], 1))
        return own.last(own.e(torch.cat([own.over(d), a], 1))).permute(0, 2, 3, 1).flatten(0, 2)

    return module(torch, parts, forward)


def _pixels(torch: Any, number: int) -> dict[str, Any]:
    found = _drawn(torch, number, 4, x=(3, 3, 28, 36))
    draws = torch.Generator().manual_seed(number + 100)
    return found | {"target": torch.randint(0, 4, (3 * 28 * 36,), generator=draws)}


def _translator(torch: Any) -> Any:
    """A bidirectional GRU reads, another writes, and looks at what was read."""
    nn = torch.nn
    parts = {
        "words": nn.Embedding(50, 24), "read": nn.GRU(24, 20, bidirectional=True), "write": nn.GRU(24, 40),
        "begin": nn.Linear(20, 40), "key": nn.Linear(40, 40, bias=False), "last": nn.Linear(80, 50),
    }  # fmt: skip

    def forward(own: Any, x: Any, before: Any) -> Any:
        read, end = own.read(own.words(x))
        states, _ = own.write(own.words(before), torch.tanh(own.begin(end.mean(0, keepdim=True))))
        scores = torch.einsum("tbh,sbh->bts", states, own.key(read))
        seen = torch.einsum("bts,sbh->tbh", scores.softmax(-1), read)
        return own.last(torch.cat([states, seen], -1)).flatten(0, 1)

    return module(torch, parts, forward)


def _pairs(torch: Any, number: int) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(number)
    x, y = (torch.randint(0, 50, (n, 5), generator=draws) for n in (13, 10))
    return {"x": x, "before": y[:-1].contiguous(), "target": y[1:].reshape(-1)}


def _wavenet(torch: Any) -> Any:
    """Gated dilated convolutions over the past, with residuals and skips, and normalised weights."""
    nn, normed = torch.nn, torch.nn.utils.parametrizations.weight_norm
    parts = {"first": nn.Conv1d(1, 16, 1), "last": nn.Conv1d(24, 32, 1)}
    for k in range(6):
        parts |= {f"gate{k}": normed(nn.Conv1d(16, 32, 2, dilation=2**k)), f"skip{k}": nn.Conv1d(16, 24, 1)}
        parts |= {f"on{k}": nn.Conv1d(16, 16, 1)} if k < 5 else {}

    def forward(own: Any, x: Any) -> Any:
        x, skips = own.first(x), 0.0
        for k in range(6):
            gate = getattr(own, f"gate{k}")(torch.nn.functional.pad(x, (2**k, 0)))
            y = torch.tanh(gate[:, :16]) * torch.sigmoid(gate[:, 16:])
            skips = skips + getattr(own, f"skip{k}")(y)
            x = x + getattr(own, f"on{k}")(y) if k < 5 else x
        return own.last(torch.relu(skips)).transpose(1, 2).flatten(0, 1)

    return module(torch, parts, forward)


def _waves(torch: Any, number: int) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(number)
    x = torch.randn(2, 1, 90, generator=draws).cumsum(2) / 5
    return {"x": x, "target": torch.randint(0, 32, (180,), generator=draws)}


def _experts(torch: Any) -> Any:
    """Two of five experts a token, by a gate; the others' weights are not asked."""
    nn, count = torch.nn, 5
    parts = {"gate": nn.Linear(16, count, bias=False), "last": nn.Linear(16, 7), "norm": nn.LayerNorm(16)}
    parts |= {f"e{k}": nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 16)) for k in range(count)}

    def forward(own: Any, x: Any) -> Any:
        best, which = own.gate(x).topk(2, -1)
        shares = torch.zeros_like(own.gate(x)).scatter(-1, which, best.softmax(-1))
        y = sum(shares[:, k : k + 1] * getattr(own, f"e{k}")(x) for k in range(count))
        return own.last(own.norm(x + y))

    return module(torch, parts, forward)


def _diffusion(torch: Any) -> Any:
    """Says what noise is in a picture at some time, with normalised groups, and attention where it is small."""
    nn = torch.nn

    def block(c: int, f: int) -> Any:
        inner = {
            "one": nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, f, 3, padding=1)),
            "time": nn.Linear(32, f),
            "two": nn.Sequential(nn.GroupNorm(4, f), nn.SiLU(), mask(torch), nn.Conv2d(f, f, 3, padding=1)),
            "short": nn.Conv2d(c, f, 1) if c != f else nn.Identity(),
        }  # fmt: skip
        return module(
            torch, inner, lambda own, x, t: own.short(x) + own.two(own.one(x) + own.time(t)[:, :, None, None])
        )

    parts = {
        "time": nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32)), "first": nn.Conv2d(3, 16, 3, padding=1),
        "down": block(16, 16), "less": nn.Conv2d(16, 24, 3, 2, 1), "mid": block(24, 24),
        "norm": nn.GroupNorm(6, 24), "attend": nn.MultiheadAttention(24, 3, batch_first=True), "mid2": block(24, 24),
        "wide": nn.Conv2d(24, 16, 3, padding=1), "up": block(32, 16), "last": nn.Conv2d(16, 3, 3, padding=1),
    }  # fmt: skip

    def forward(own: Any, x: Any, time: Any) -> Any:
        angles = time[:, None] * torch.exp(-torch.arange(8).to(x.dtype))
        t = own.time(torch.cat([angles.sin(), angles.cos()], 1))
        a = own.down(own.first(x), t)
        b = own.mid(own.less(a), t)
        rows = own.norm(b).flatten(2).transpose(1, 2)
        b = b + own.attend(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(b.shape)
        b = torch.nn.functional.interpolate(own.mid2(b, t), scale_factor=2.0, mode="nearest")
        return own.last(own.up(torch.cat([own.wide(b), a], 1), t))

    return module(torch, parts, forward)


def _graph(torch: Any) -> Any:
    """Messages over edges, added and taken the largest of where they arrive."""
    nn = torch.nn
    edges = torch.randint(0, 30, (2, 90), generator=torch.Generator().manual_seed(3))
    parts = {"first": nn.Linear(8, 16), "send": nn.Linear(32, 16), "cell": nn.GRUCell(32, 16), "last": nn.Linear(16, 3)}

    def forward(own: Any, x: Any) -> Any:
        h = torch.tanh(own.first(x))
        for _ in range(3):
            sent = torch.relu(own.send(torch.cat([h[own.edges[0]], h[own.edges[1]]], 1)))
            place = own.edges[1][:, None].expand(-1, 16)
            added = torch.zeros_like(h).scatter_add(0, place, sent)
            most = torch.zeros_like(h).scatter_reduce(0, place, sent, "amax")
            h = own.cell(torch.cat([added, most], 1), h)
        return own.last(h)

    made = module(torch, parts, forward)
    made.register_buffer("edges", edges)
    return made


def _spatial(torch: Any) -> Any:
    """A spatial transformer: a small network says how a picture is turned before another looks at it."""
    nn = torch.nn
    parts = {
        "where": nn.Sequential(nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(216, 6)),
        "look": nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.InstanceNorm2d(8, affine=True), nn.ELU(),
                              nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5)),
    }  # fmt: skip

    def forward(own: Any, x: Any) -> Any:
        functions = torch.nn.functional
        turned = own.where(x).view(-1, 2, 3) * 0.2 + torch.eye(2, 3, dtype=x.dtype)
        grid = functions.affine_grid(turned, [4, 1, 16, 16], align_corners=False)
        return own.look(functions.grid_sample(x, grid, align_corners=False))

    return module(torch, parts, forward)


def _efficient(torch: Any) -> Any:
    """Inverted bottlenecks with squeeze and excitation, Hardswish, and pictures made larger by shuffled channels."""
    nn = torch.nn

    def block(c: int, f: int, size: int, stride: int) -> Any:
        inner = 3 * c
        parts = {
            "wide": nn.Sequential(nn.Conv2d(c, inner, 1, bias=False), nn.BatchNorm2d(inner, momentum=0.01), nn.SiLU()),
            "depth": nn.Sequential(
                nn.Conv2d(inner, inner, size, stride, size // 2, groups=inner, bias=False), nn.BatchNorm2d(inner),
                nn.Hardswish(),
            ),
            "gate": nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, 6, 1), nn.SiLU(), nn.Conv2d(6, inner, 1), nn.Hardsigmoid()
            ),
            "thin": nn.Sequential(nn.Conv2d(inner, f, 1, bias=False), nn.BatchNorm2d(f)),
        }  # fmt: skip

        def forward(own: Any, x: Any) -> Any:
            y = own.depth(own.wide(x))
            y = own.thin(own.gate(y) * y)
            return y + x if x.shape == y.shape else y

        return module(torch, parts, forward)

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU(), block(16, 16, 3, 1), block(16, 24, 5, 2),
        block(24, 24, 5, 1), nn.Conv2d(24, 48, 1), nn.PixelShuffle(4), nn.PReLU(3),
    )  # fmt: skip


def _swin(torch: Any) -> Any:
    """Attention in windows that move, with biases by place."""
    found = importlib.import_module("transformers")
    config = found.SwinConfig(
        image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=6,
        drop_path_rate=0.0, attn_implementation="eager",
    )  # fmt: skip
    made = found.SwinForImageClassification(config)
    return module(torch, {"net": made}, lambda own, x: own.net(pixel_values=x).logits)


def _llama(torch: Any) -> Any:
    """Rotated positions, heads that share keys, root mean squares, gated products."""
    found = importlib.import_module("transformers")
    config = found.LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, use_cache=False,
        attn_implementation="eager",
    )  # fmt: skip
    made = found.LlamaForCausalLM(config)
    return module(torch, {"net": made}, lambda own, x: own.net(input_ids=x).logits.flatten(0, 1))


def _words(torch: Any, number: int) -> dict[str, Any]:
    x = torch.randint(0, 300, (3, 25), generator=torch.Generator().manual_seed(number))
    return {"x": x[:, :-1].contiguous(), "target": x[:, 1:].reshape(-1)}


FOREIGN: dict[str, Lesson] = {
    "unet": Lesson(_unet, _pixels),
    "translator": Lesson(_translator, _pairs),
    "wavenet": Lesson(_wavenet, _waves),
    "experts": Lesson(_experts, lambda torch, k: _drawn(torch, k, 7, x=(40, 16))),
    "diffusion": Lesson(_diffusion, lambda torch, k: _drawn(torch, k, _NOISE, x=_NOISE, time=(2,)), SQUARE),
    "graph": Lesson(_graph, lambda torch, k: _drawn(torch, k, 3, x=(30, 8)), traced=False),
    "spatial": Lesson(_spatial, lambda torch, k: _drawn(torch, k, 5, x=(4, 1, 16, 16)), traced=False),
    "efficient": Lesson(_efficient, lambda torch, k: _drawn(torch, k, (2, 3, 36, 24), x=(2, 3, 36, 24)), SQUARE),
    "swin": Lesson(_swin, lambda torch, k: _drawn(torch, k, 6, x=(2, 3, 32, 32)), traced=False),
    "llama": Lesson(_llama, _words, traced=False),
}
