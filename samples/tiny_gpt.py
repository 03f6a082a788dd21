#!/usr/bin/env python3
"""A small GPT from nothing: the model and its loss are NumPy functions, their gradient is compiled.

    python samples/tiny_gpt.py [FILE [STEPS]]      a text to learn from, CHANGELOG.md if not given; 400 steps

It predicts the next letter from those before it. A step is one call of a compiled function for loss and gradients, and
Adam in NumPy. At the end it writes some text of its own, by the same model compiled without the gradient.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import torshc

Array = NDArray[Any]
Weights = dict[str, Array]

LAYERS, HEADS, DEPTH, LENGTH, BATCH = 2, 4, 16, 64, 16
WIDTH = HEADS * DEPTH
RATE, BETAS, EPSILON = 3e-3, (0.9, 0.99), 1e-8


def norm(x: Array) -> Array:
    """Layer normalisation without scale and shift, which the product behind it has."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def attend(x: Array, w: Weights, layer: int) -> Array:
    """Each letter looks at those before it."""
    batch, length, _ = x.shape
    q, k, v = ((x @ w[f"{name}{layer}"]).reshape(batch, length, HEADS, DEPTH).transpose(0, 2, 1, 3) for name in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.float32(DEPTH**0.5)
    scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, np.float32(-1e9))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, WIDTH) @ w[f"out{layer}"]


def logits(w: Weights, text: Array) -> Array:
    """Scores of the next letter at each place; i64 [batch, length] -> f32 [batch, length, letters]."""
    x = w["letter"][text] + w["place"][: text.shape[1]]
    for layer in range(LAYERS):
        x = x + attend(norm(x), w, layer)
        x = x + np.maximum(norm(x) @ w[f"up{layer}"], 0) @ w[f"down{layer}"]
    return norm(x) @ w["last"]


def loss(w: Weights, text: Array, following: Array) -> Array:
    """Nats that a letter costs, in the mean; `following` has 1 at the letter that follows, else 0."""
    z = logits(w, text)
    z = z - z.max(-1, keepdims=True)
    return np.mean(np.log(np.exp(z).sum(-1)) - (z * following).sum(-1))


def make_weights(letters: int, rng: np.random.Generator) -> Weights:
    """Random weights, by the number of what they are multiplied with."""
    shapes = {"letter": (letters, WIDTH), "place": (LENGTH, WIDTH), "last": (WIDTH, letters)}
    for layer in range(LAYERS):
        shapes |= {f"{name}{layer}": (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
        shapes |= {f"up{layer}": (WIDTH, 4 * WIDTH), f"down{layer}": (4 * WIDTH, WIDTH)}
    return {name: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for name, s in shapes.items()}


def train(codes: Array, letters: int, steps: int, rng: np.random.Generator) -> Weights:
    """Weights after some steps of Adam, each of `BATCH` pieces of the text."""
    w = make_weights(letters, rng)
    first, second = ({n: np.zeros_like(a) for n, a in w.items()} for _ in range(2))
    step = torshc.value_and_grad(loss)
    started = time.perf_counter()
    for k in range(1, steps + 1):
        at = rng.integers(0, len(codes) - LENGTH - 1, BATCH)[:, None] + np.arange(LENGTH)
        value, slopes = step(w, codes[at], np.eye(letters, dtype=np.float32)[codes[at + 1]])
        for n, g in slopes.items():
            first[n] = BETAS[0] * first[n] + (1 - BETAS[0]) * g
            second[n] = BETAS[1] * second[n] + (1 - BETAS[1]) * g * g
            along = first[n] / (1 - BETAS[0] ** k) / (np.sqrt(second[n] / (1 - BETAS[1] ** k)) + EPSILON)
            w[n] = (w[n] - RATE * along).astype(np.float32)
        if k == 1:
            print(f"compiled in {time.perf_counter() - started:.1f} s; {sum(a.size for a in w.values()):,} weights")
            started = time.perf_counter()
        if k == 1 or k % max(1, steps // 10) == 0:
            print(f"step {k:4} of {steps}: {float(value):.3f} nats a letter", flush=True)
    if steps > 1:
        print(f"{1e3 * (time.perf_counter() - started) / (steps - 1):.1f} ms a step")
    return w


def write(w: Weights, alphabet: str, count: int, rng: np.random.Generator) -> str:
    """Letters that the model draws, one after another."""
    following = torshc.jit(logits)
    codes = [alphabet.index(" ")]
    for _ in range(count):
        z = following(w, np.array([codes[-LENGTH:]]))[0, -1].astype(np.float64) / 0.7
        p = np.exp(z - z.max())
        codes.append(int(rng.choice(len(alphabet), p=p / p.sum())))
    return "".join(alphabet[c] for c in codes[1:])


def main(file: str = "", steps: str = "400") -> None:
    """The demo."""
    text = (Path(file) if file else Path(__file__).resolve().parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    alphabet = "".join(sorted({*text, " "}))
    rng = np.random.default_rng(0)
    w = train(np.array([alphabet.index(c) for c in text]), len(alphabet), int(steps), rng)
    print(write(w, alphabet, 300, rng))


if __name__ == "__main__":
    main(*sys.argv[1:3])
