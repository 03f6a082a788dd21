"""samples/generate.py: caches that grow and caches with room, chosen words, kind errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "generate.py"
HEADS, WIDTH, WORDS = 2, 8, 40
HIDDEN = HEADS * WIDTH


@pytest.fixture(scope="module")
def sample() -> Any:
    """The sample as a module; its dataclasses look themselves up by its name."""
    spec = importlib.util.spec_from_file_location("generate_sample", SAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def decoder(path: Path, grouped: bool, cached: bool = True) -> Path:
    """A decoder of one layer: by GroupQueryAttention, whose cache has room, or with a cache that grows."""
    rng, make, value = np.random.default_rng(3), helper.make_node, helper.make_tensor_value_info
    shapes = {"table": (WORDS, HIDDEN), **{f"w{n}": (HIDDEN, HIDDEN) for n in "qkv"}, "out": (HIDDEN, WORDS)}
    weights: dict[str, Any] = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    nodes = [make("Gather", ["table", "input_ids"], ["x"])]
    nodes += [make("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"]
    caches = [f"past_key_values.0.{n}" for n in ("key", "value")]
    presents = [f"present.0.{n}" for n in ("key", "value")]
    given = ["input_ids", "attention_mask"] if grouped else ["input_ids"]
    if grouped:
        weights |= {"axes": np.array([1]), "one": np.array(1), "second": np.array(1)}
        nodes += [
            make("ReduceSum", ["attention_mask", "axes"], ["counted"], keepdims=0),
            make("Sub", ["counted", "one"], ["last64"]),
            make("Cast", ["last64"], ["last"], to=TensorProto.INT32),
            make("Shape", ["attention_mask"], ["sizes"]),
            make("Gather", ["sizes", "second"], ["total64"]),
            make("Cast", ["total64"], ["total"], to=TensorProto.INT32),
            make(
                "GroupQueryAttention", ["q", "k", "v", *caches, "last", "total"], ["t", *presents],
                domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS,
            ),
        ]  # fmt: skip
    else:
        given += caches if cached else []
        nodes.append(
            make(
                "Attention", ["q", "k", "v", "", *(caches if cached else [])], ["t", *(presents if cached else [])],
                q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1,
            )
        )  # fmt: skip
    nodes.append(make("MatMul", ["t", "out"], ["logits"]))
    past, present = [1, HEADS, "past", WIDTH], [1, HEADS, None, WIDTH]
    inputs = [value("input_ids", TensorProto.INT64, [1, "new"])]
    inputs += [value("attention_mask", TensorProto.INT64, [1, "all"])] if grouped else []
    inputs += [value(n, TensorProto.FLOAT, past) for n in caches] if cached else []
    outputs = [value("logits", TensorProto.FLOAT, [1, "new", WORDS])]
    outputs += [value(n, TensorProto.FLOAT, present) for n in presents] if cached else []
    graph = helper.make_graph(
        nodes, "decoder", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def tokenizer(path: Path, words: int = WORDS) -> Path:
    """A tokenizer of words `w0` ... by the package, which must be installed."""
    package = pytest.importorskip("tokenizers")
    made = package.Tokenizer(package.models.WordLevel({f"w{k}": k for k in range(words)}, unk_token="w0"))
    made.pre_tokenizer = package.pre_tokenizers.Whitespace()
    made.save(str(path))
    return path


@pytest.mark.parametrize("grouped", [False, True])
def test_a_cache_gives_what_the_whole_text_gives(grouped: bool, sample: Any, tmp_path: Path) -> None:
    """Each word is the likeliest behind all before it, computed at once."""
    path = decoder(tmp_path / "m.onnx", grouped)
    about = sample.describe_model(path)
    assert about.fixed is grouped and [c.past for c in about.caches] == [
        "past_key_values.0.key",
        "past_key_values.0.value",
    ]
    run = sample.compiled(path, about, "f32", 1)
    words, _ = sample.generate(sample.Decoder(run, about, 12), sample.Choice(), [3, 1, 4], WORDS, 8)
    text = [3, 1, 4]
    for word in words:
        logits = sample.Decoder(run, about, 12).step(text)
        assert word == logits.argmax()
        text.append(word)


def test_a_seed_draws_the_same_words(sample: Any, tmp_path: Path) -> None:
    path = decoder(tmp_path / "m.onnx", False)
    about, run = sample.describe_model(path), sample.compiled(path, sample.describe_model(path), "f32", 1)

    def drawn(seed: int) -> list[int]:
        choice = sample.Choice(100.0, 10, seed)
        return list(sample.generate(sample.Decoder(run, about, 40), choice, [3], WORDS, 20)[0])

    assert drawn(1) == drawn(1) != drawn(2)


def test_few_words_are_drawn_from(sample: Any) -> None:
    rng, logits = np.random.default_rng(0), np.array([0.0, 3.0, 1.0, 2.9], np.float32)
    assert {sample.Choice(1.0, 2).choose(logits, rng) for _ in range(50)} == {1, 3}
    assert sample.Choice().choose(logits, rng) == 1


def test_the_command(sample: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = decoder(tmp_path / "m.onnx", False)
    tokenizer(tmp_path / "tokenizer.json")
    arguments = [str(path), "--prompt", "w3 w1 w4", "--tokens", "6", "--against", "ort"]
    assert sample.main(arguments) == 0
    said = capsys.readouterr().out
    assert "torshc: 3 words of the prompt, 6 new ones" in said and "both wrote the same" in said


def test_kind_errors(sample: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: object) -> str:
        assert sample.main([str(a) for a in arguments]) == 1
        return capsys.readouterr().err

    path = decoder(tmp_path / "m.onnx", False)
    named = tokenizer(tmp_path / "words.json")
    assert "there is no" in refused(path) and "--tokenizer" in refused(path)
    (tmp_path / "bad.json").write_text("{}")
    assert "is not a file of the package tokenizers" in refused(path, "--tokenizer", tmp_path / "bad.json")
    plain = decoder(tmp_path / "plain.onnx", False, cached=False)
    assert "a cache has as many of both" in refused(plain, "--tokenizer", named)
    assert "cannot be read" in refused(tmp_path / "none.onnx", "--tokenizer", named)
    more = tokenizer(tmp_path / "more.json", WORDS + 1)
    assert f"{WORDS + 1} words and the model {WORDS}" in refused(path, "--prompt", "w1", "--tokenizer", more)
