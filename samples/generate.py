#!/usr/bin/env python3
"""Text from an ONNX export of a language model with a cache of keys and values, such as Llama or GPT-2.

    generate.py MODEL.onnx --prompt TEXT [--tokenizer tokenizer.json] [--tokens 32]
                [--temperature 0.8 --top-k 40 --seed 1] [--threads 2] [--precision bf16] [--against ort]

The model is compiled first, into MODEL.tsc, unless that is there and newer. It has inputs of words (``input_ids``),
perhaps ``attention_mask`` and ``position_ids``, and a cache: inputs [batch, heads, positions, width], each with an
output, in one order, as ``past_key_values.0.key`` and ``present.0.key``. Where outputs are longer than inputs by the
new words, the outputs of a step are the inputs of the next. Where they are as long (GroupQueryAttention), the cache has
room for all words from the start, and a step writes the new words into the arrays that it reads; by a runtime that
cannot, steps read and write two sets of arrays in turns.

The tokenizer is a file of the ``tokenizers`` package (``pip install tokenizers``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import torshc

Array = NDArray[Any]
FLOATS = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.FLOAT16: np.float16}
WORDS = ("input_ids", "attention_mask", "position_ids")


class Fault(Exception):
    """What a user can mend; the text says how."""


@dataclass(frozen=True)
class Cache:
    """A tensor of the cache: its input and output, [1, heads, positions, width], and its element type."""

    past: str
    present: str
    heads: int
    width: int
    dtype: type


@dataclass(frozen=True)
class Description:
    """What a model reads and gives.

    Attributes:
        words: those of WORDS that it has as inputs.
        logits: the output with a number for each word of the vocabulary.
        caches: the caches, in the order of the model's inputs.
        fixed: whether caches have room for all words from the start.
        count: the name of the number of new words, empty where it is known or has none that options can say.
    """

    words: tuple[str, ...]
    logits: str
    caches: tuple[Cache, ...]
    fixed: bool
    count: str


def describe_model(path: Path) -> Description:
    """What the inputs and outputs of a file are for.

    Raises:
        Fault: it cannot be read, or is no decoder with a cache.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (OSError, ValueError) as error:  # DecodeError is a ValueError
        raise Fault(f"{path} cannot be read as ONNX: {error}") from None
    constants = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    past = [i for i in inputs if _rank(i) == 4]
    present = [o for o in graph.output if _rank(o) == 4]
    logits = [o.name for o in graph.output if _rank(o) == 3]
    words = tuple(i.name for i in inputs if i.name in WORDS)
    if not past or len(past) != len(present):
        raise Fault(
            f"{path} has {len(past)} inputs and {len(present)} outputs of four dimensions, and a cache has as many of "
            "both: export it with its past keys and values (optimum: --task text-generation-with-past)"
        )
    unknown = [i.name for i in inputs if i not in past and i.name not in WORDS]
    if unknown or "input_ids" not in words or len(logits) != 1:
        raise Fault(
            f"{path} reads {', '.join(i.name for i in inputs if i not in past)} and gives {', '.join(logits)}; this "
            f"sample knows {', '.join(WORDS)}, and one output of three dimensions"
        )
    caches = tuple(_cache(path, i, o.name) for i, o in zip(past, present, strict=True))
    fixed = any(n.op_type == "GroupQueryAttention" for n in graph.node)
    (count,) = (i.type.tensor_type.shape.dim[-1].dim_param for i in inputs if i.name == "input_ids")
    return Description(words, logits[0], caches, fixed, count if count.isidentifier() else "")


def _rank(value: onnx.ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)


def _cache(path: Path, value: onnx.ValueInfoProto, present: str) -> Cache:
    dims, dtype = value.type.tensor_type.shape.dim, FLOATS.get(value.type.tensor_type.elem_type)
    if dtype is None or not dims[1].dim_value or not dims[3].dim_value:
        raise Fault(f"{path}: the cache {value.name} is not of f32 or f16, or its heads and width are not known")
    return Cache(value.name, present, dims[1].dim_value, dims[3].dim_value, dtype)


@dataclass(frozen=True)
class Run:
    """A model that is loaded.

    Attributes:
        call: runs it; outputs that it is given arrays for are written there.
        shared: outputs that may be the array of an input, by name, with that input's name.
    """

    call: Callable[[dict[str, Array], dict[str, Array]], Mapping[str, Array]]
    shared: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Decoder:
    """A model on its way through a text.

    Attributes:
        run, about: the model.
        room: words that a fixed cache has room for.
        length: words so far.
        past, present: the arrays of the cache that the next step reads, and those that it writes, where they are known.
    """

    run: Run
    about: Description
    room: int
    length: int = 0
    past: dict[str, Array] = field(default_factory=dict)
    present: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.room if self.about.fixed else 0
        self.past = {c.past: np.zeros((1, c.heads, rows, c.width), c.dtype) for c in self.about.caches}
        if self.about.fixed:
            self.present = {c.present: self._written(c) for c in self.about.caches}

    def _written(self, c: Cache) -> Array:
        before = self.past[c.past]
        return before if self.run.shared.get(c.present) == c.past else np.empty_like(before)

    def step(self, words: list[int]) -> Array:
        """Read words; returns a number for each word of the vocabulary, the larger the likelier it is next."""
        end = self.length + len(words)
        given = {
            "input_ids": np.array([words], np.int64),
            "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(self.length, end, dtype=np.int64)[None],
        }
        found = self.run.call({n: given[n] for n in self.about.words} | self.past, self.present)
        if self.about.fixed:
            self.present = {c.present: self.past[c.past] for c in self.about.caches}
        self.past = {c.past: found[c.present] for c in self.about.caches}
        self.length = end
        return np.asarray(found[self.about.logits][0, -1], np.float32)


@dataclass(frozen=True)
class Choice:
    """How a word is chosen: the likeliest where the temperature is 0, else one drawn from the `top_k` likeliest."""

    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def words(self, decoder: Decoder, prompt: list[int], known: int) -> Iterator[int]:
        """The words behind a prompt, of the first `known` of the vocabulary."""
        rng, logits = np.random.default_rng(self.seed), decoder.step(prompt)
        if len(logits) < known:
            raise Fault(f"the tokenizer has {known} words and the model {len(logits)}: they do not belong together")
        while True:
            word = self.choose(logits[:known], rng)
            yield word
            logits = decoder.step([word])

    def choose(self, logits: Array, rng: np.random.Generator) -> int:
        """A word."""
        if self.temperature <= 0:
            return int(logits.argmax())
        order = np.argsort(-logits, kind="stable")[: self.top_k or None]
        weights = np.exp((logits[order] - logits[order[0]]).astype(np.float64) / self.temperature)
        return int(rng.choice(order, p=weights / weights.sum()))


def generate(decoder: Decoder, choice: Choice, prompt: list[int], known: int, count: int) -> tuple[list[int], float]:
    """`count` words behind a prompt, and the seconds of a step: those of the prompt do not count."""
    words, began = [], 0.0
    for word in choice.words(decoder, prompt, known):
        began = began or time.perf_counter()
        words.append(word)
        if len(words) == count:
            break
    return words, (time.perf_counter() - began) / max(1, count - 1)


def load_tokenizer(path: Path) -> Any:
    """A tokenizer of a file of the `tokenizers` package.

    Raises:
        Fault: the package or the file is missing, or the file is of another kind.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Fault("the package tokenizers is not installed: pip install tokenizers") from None
    if not path.is_file():
        raise Fault(f"there is no {path}: name the model's tokenizer.json with --tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no narrower one
        raise Fault(f"{path} is not a file of the package tokenizers: {error}") from None


def compiled(model: Path, about: Description, precision: str, threads: int) -> Run:
    """The model by torshc, compiled unless that was done before, with a variant for steps of one word."""
    bundle = model.with_suffix(".tsc" if precision == "f32" else f".{precision}.tsc")
    if not bundle.exists() or bundle.stat().st_mtime < model.stat().st_mtime:
        print(f"compiling {model} into {bundle}", file=sys.stderr)
        torshc.compile(model, bundle, precision=precision, specialize=[f"{about.count}=1"] if about.count else [])
    loaded = torshc.load(bundle, threads=threads)
    return Run(lambda feeds, out: loaded.run(feeds, out=out), loaded.shared)


def onnx_runtime(model: Path, threads: int) -> Run:
    """The model by ONNX Runtime.

    Raises:
        Fault: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise Fault("--against ort needs ONNX Runtime: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return Run(lambda feeds, out: dict(zip(names, session.run(names, feeds), strict=True)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the model, as ONNX")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json; by default that beside the model")
    parser.add_argument("--prompt", default="The quick brown fox", help="the text to go on with")
    parser.add_argument("--tokens", type=int, default=32, help="words to generate")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest word each time")
    parser.add_argument("--top-k", type=int, default=0, help="draw from so many of the likeliest words; 0: from all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("f32", "bf16", "f16"), default="f32")
    parser.add_argument("--against", choices=("ort",), help="the same by ONNX Runtime, where it is installed")
    args = parser.parse_args(arguments)
    try:
        write_text(args)
    except (Fault, torshc.TorshcError) as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1
    return 0


def write_text(args: argparse.Namespace) -> None:
    """Print what the model writes, and how fast it does."""
    tokenizer = load_tokenizer(args.tokenizer or args.model.parent / "tokenizer.json")
    about, prompt = describe_model(args.model), tokenizer.encode(args.prompt).ids
    if not prompt or args.tokens < 1:
        raise Fault("there is nothing to do: the prompt has no words, or --tokens is below 1")
    choice = Choice(args.temperature, args.top_k, args.seed)
    runs = {"torshc": compiled(args.model, about, args.precision, args.threads)}
    if args.against:
        runs["ONNX Runtime"] = onnx_runtime(args.model, args.threads)
    texts = []
    for name, run in runs.items():
        decoder = Decoder(run, about, len(prompt) + args.tokens)
        words, seconds = generate(decoder, choice, prompt, tokenizer.get_vocab_size(), args.tokens)
        texts.append(words)
        if len(texts) == 1:
            print(args.prompt + tokenizer.decode(words))
        print(f"{name}: {len(prompt)} words of the prompt, {len(words)} new ones, {1 / seconds:.1f} words a second")
    if len(texts) > 1:
        same = next((i for i, pair in enumerate(zip(*texts, strict=True)) if len({*pair}) > 1), args.tokens)
        print("both wrote the same" if same == args.tokens else f"they differ from word {same + 1} on")


if __name__ == "__main__":
    sys.exit(main())
