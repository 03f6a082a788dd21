"""Operators over strings: graphs of them, their host operators under the sanitizers and the rest with NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.compare import assert_same
from tests.support.evaluate import run_nodes
from tests.support.models import node_model
from tests.templates.host_harness import Array, Failed, Harness
from torshc import backend
from torshc.base.errors import ModelError, UnsupportedError
from torshc.expr import Expr, const
from torshc.formats import load_graph
from torshc.graph import Value
from torshc.ops.core.host import HostOp


@pytest.fixture(scope="module")
def host() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    assert harness.close() == 0


def s(*texts: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A tensor of strings."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array if shape is None else array.reshape(shape)


def model(op: str, inputs: list[Array], outputs: int = 1, symbolic: bool = False, **attributes: Any) -> bytes:
    """A model of one node; with `symbolic`, no dimension of its first input is known."""
    domain = "ai.onnx.ml" if op in ("LabelEncoder", "CategoryMapper", "OneHotEncoder", "ZipMap") else ""
    domain = "com.microsoft" if op == "Tokenizer" else domain
    opset = attributes.pop("opset", {"": 23, "ai.onnx.ml": 4}.get(domain, 1))
    dims = {0: [f"d0{i}" for i in range(inputs[0].ndim)]} if symbolic else None
    made = node_model(op, inputs, (), outputs, dims, domain, {domain: opset}, **attributes)
    return bytes(made.SerializeToString())


def evaluate(host: Harness, op: str, inputs: list[Array], outputs: int = 1, **attributes: Any) -> list[Array]:
    """The outputs of a node, once with static and once with symbolic dimensions, which must be the same."""
    both = [_run(host, model(op, inputs, outputs, symbolic, **attributes), inputs) for symbolic in (False, True)]
    for a, b in zip(*both, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    return both[0]


def _run(host: Harness, data: bytes, inputs: list[Array]) -> list[Array]:
    graph = load_graph(data)
    values: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    dims: dict[Expr, Expr] = {}

    def bind(v: Value) -> None:
        dims.update((d, const(n)) for d, n in zip(v.shape, values[v].shape, strict=True) if d.op == "dim")

    for v in graph.inputs:
        bind(v)
    for node in graph.nodes:
        if not isinstance(node.op, HostOp):
            run_nodes([node], values, dims)
            continue
        given = [v.const if v.const is not None else values[v] for v in node.operands]
        made = host(node.op.function, given, node.op.integers(), len(node.outputs))
        for v, array in zip(node.outputs, made, strict=True):
            values[v] = array
            assert v.type.rank == array.ndim and v.dtype.numpy == array.dtype, (node, v.type, array)
            bind(v)
    return [v.const if v.const is not None else values[v] for v in graph.outputs]


X = s("a", "b", "c", "d", "e", "f", shape=(2, 3))


def test_concat_and_equal_broadcast(host: Harness) -> None:
    assert_same(
        evaluate(host, "StringConcat", [X, s("1", "", "é")])[0], s("a1", "b", "cé", "d1", "e", "fé", shape=(2, 3))
    )
    column = s("1", "2", shape=(2, 1))
    data = onnx.load_from_string(model("StringConcat", [X, column], symbolic=True))
    for k, d in enumerate(data.graph.input[1].type.tensor_type.shape.dim):
        d.dim_param = f"other{k}"
    assert_same(
        _run(host, data.SerializeToString(), [X, column])[0], s("a1", "b1", "c1", "d2", "e2", "f2", shape=(2, 3))
    )
    assert_same(evaluate(host, "StringConcat", [s("a", shape=()), s("b", shape=())])[0], s("ab", shape=()))
    assert_same(evaluate(host, "StringConcat", [s(shape=(0, 3)), s("b")])[0], s(shape=(0, 3)))
    assert_same(
        evaluate(host, "Equal", [X, s("a", "x", "f")])[0], np.array([[True, False, False], [False, False, True]])
    )
    assert_same(evaluate(host, "Equal", [s("a", "ab"), s("ab", "ab")])[0], np.array([False, True]))


def test_operands_that_do_not_broadcast(host: Harness) -> None:
    with pytest.raises(ModelError, match="broadcast"):
        load_graph(model("StringConcat", [X, s("a", "b")]))
    with pytest.raises(Failed, match="broadcast"):
        _run(host, model("StringConcat", [X, s("a", "b")], symbolic=True), [X, s("a", "b")])


@pytest.mark.parametrize(
    ("texts", "attributes", "pieces"),
    [
        (["a,b", "c", "", ",d,"], {"delimiter": ","}, [["a", "b"], ["c"], [""], ["", "d", ""]]),
        (["a::b:::c"], {"delimiter": "::"}, [["a", "b", ":c"]]),
        (["a,b,c", ",,"], {"delimiter": ",", "maxsplit": 1}, [["a", "b,c"], ["", ","]]),
        ([" a\t b\u2003c ", "", "  "], {}, [["a", "b", "c"], [], []]),
        ([" a  b  c "], {"maxsplit": 1}, [["a", "b  c "]]),
        (["a b", "a "], {"maxsplit": 0}, [["a b"], ["a "]]),
        (["ab"], {"delimiter": "abc"}, [["ab"]]),
        ([""], {}, [[]]),
        ([], {"delimiter": "-"}, []),
    ],
)
def test_split(host: Harness, texts: list[str], attributes: dict[str, Any], pieces: list[list[str]]) -> None:
    most = max(map(len, pieces), default=0)
    want = s(*(p for row in pieces for p in [*row, *[""] * (most - len(row))]), shape=(len(texts), most))
    got, counts = evaluate(host, "StringSplit", [s(*texts)], 2, **attributes)
    assert_same(got, want)
    assert_same(counts, np.array([len(row) for row in pieces], np.int64))


MOVED: list[tuple[str, list[Array], dict[str, Any], Any]] = [
    ("Identity", [X], {}, X),
    ("Reshape", [X, np.array([3, -1])], {}, X.reshape(3, 2)),
    ("Flatten", [X], {"axis": 0}, X.reshape(1, 6)),
    ("Unsqueeze", [X, np.array([0, 2])], {}, X[None, :, None]),
    ("Transpose", [X], {}, X.T),
    ("Expand", [s("a", "b"), np.array([3, 1])], {}, s("a", "b", "a", "b", "a", "b", shape=(3, 2))),
    ("Concat", [X, X[:1]], {"axis": 0}, np.concatenate([X, X[:1]])),
    ("Gather", [X, np.array([2, 0])], {"axis": 1}, X[:, [2, 0]]),
    ("GatherElements", [X, np.array([[0, 2, 1], [1, 0, 2]])], {"axis": 1}, s(*"acbedf", shape=(2, 3))),
    ("Slice", [X, np.array([2]), np.array([-10]), np.array([1]), np.array([-1])], {}, X[:, ::-1]),
    ("Tile", [X, np.array([1, 2])], {}, np.tile(X, (1, 2))),
    ("Where", [np.array([True, False, True]), X, s("-")], {}, s("a", "-", "c", "d", "-", "f", shape=(2, 3))),
    ("Shape", [X], {}, np.array([2, 3])),
    ("Size", [X], {}, np.array(6)),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "want"), MOVED, ids=[m[0] for m in MOVED])
def test_elements_that_are_moved(
    host: Harness, op: str, inputs: list[Array], attributes: dict[str, Any], want: Array
) -> None:
    for symbolic in (False, True):
        data = onnx.load_from_string(model(op, inputs, 1, symbolic, **attributes))
        constants = [k for k, x in enumerate(inputs) if k and x.dtype == np.int64]  # shapes, axes, indices
        for k in reversed(constants):
            data.graph.initializer.append(onnx.numpy_helper.from_array(inputs[k], f"x{k}"))
            del data.graph.input[k]
        rest = [x for k, x in enumerate(inputs) if k not in constants]
        assert_same(_run(host, data.SerializeToString(), rest)[0], want)


def test_what_strings_are_not_made_for() -> None:
    for op, attributes in (("Add", {}), ("Max", {})):
        with pytest.raises((UnsupportedError, ModelError)):
            load_graph(model(op, [X, X], **attributes))


NUMBERS: list[tuple[int, Array, Array]] = [
    (
        TensorProto.FLOAT,
        s("1.5", "-INF", "+inf", "NaN", " 1e-3 "),
        np.array([1.5, -np.inf, np.inf, np.nan, 1e-3], "f4"),
    ),
    (TensorProto.FLOAT16, s("65519", "65520", "1e-8"), np.array([65504, np.inf, 0], "f2")),
    (TensorProto.DOUBLE, s("9007199254740993", "5e-324"), np.array([9007199254740992.0, 5e-324])),
    (TensorProto.INT64, s("-12", "1e3", "100.9"), np.array([-12, 1000, 100])),
    (TensorProto.UINT8, s("255"), np.array([255], np.uint8)),
    (TensorProto.BOOL, s("0", "True", "2", "false"), np.array([False, True, True, False])),
]


@pytest.mark.parametrize(("to", "texts", "want"), NUMBERS, ids=[f"{n[0]}" for n in NUMBERS])
def test_text_to_numbers(host: Harness, to: int, texts: Array, want: Array) -> None:
    np.testing.assert_array_equal(evaluate(host, "Cast", [texts], to=to)[0], want)


@pytest.mark.parametrize(("text", "to"), [("x", 1), ("", 1), ("1 2", 1), ("256", 2), ("-1", 13), ("nan", 7), ("1e", 1)])
def test_text_that_is_no_such_number(host: Harness, text: str, to: int) -> None:
    with pytest.raises(Failed, match="element 1 is not a number"):
        evaluate(host, "Cast", [s("1", text)], to=to)


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i1", "u8", "i8", "?"])
def test_numbers_to_text_and_back(host: Harness, kind: str) -> None:
    rng = np.random.default_rng(3)
    x = np.frombuffer(rng.bytes(8 * 500), kind if kind != "?" else "u1")
    x = x % 2 == 0 if kind == "?" else x
    (got,) = evaluate(host, "Cast", [x], to=TensorProto.STRING)
    if x.dtype.kind == "f":
        near = (np.abs(np.nan_to_num(x).astype("f8")) < 1e16) & (np.abs(x) >= 1e-4)
        shortest = [
            np.format_float_positional(v, trim="0") if n else np.format_float_scientific(v, trim="-", exp_digits=2)
            for v, n in zip(x, near | (x == 0), strict=True)
        ]
        assert_same(got, s(*shortest))
    else:
        assert_same(got, x.astype(str).astype(object))
    (back,) = evaluate(host, "Cast", [got], to=helper.np_dtype_to_tensor_dtype(x.dtype))
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(
    ("texts", "attributes", "want"),
    [
        (["Monday", "monday", "x"], {"stopwords": ["monday"], "is_case_sensitive": 1}, ["Monday", "x"]),
        (["Monday", "monday", "x"], {"stopwords": ["MONDAY"], "case_change_action": "UPPER"}, ["X"]),
        (["monday"], {"stopwords": ["monday"]}, [""]),
        ([], {}, [""]),
        (["ÄßΣж", "a"], {"case_change_action": "LOWER"}, ["äßσж", "a"]),
        (["äßςж", "A\u0149"], {"case_change_action": "UPPER"}, ["ÄSSΣЖ", "A\u02bcN"]),
    ],
)
def test_normalizer(host: Harness, texts: list[str], attributes: dict[str, Any], want: list[str]) -> None:
    assert_same(evaluate(host, "StringNormalizer", [s(*texts)], **attributes)[0], s(*want))
    row = evaluate(host, "StringNormalizer", [s(*texts, shape=(1, len(texts)))], **attributes)[0]
    assert_same(row, s(*want, shape=(1, len(want))))


def test_regex(host: Harness) -> None:
    texts = s("www.google.com", "www.facebook.com", "www.bbc.co.uk", "")
    got = evaluate(host, "RegexFullMatch", [texts], pattern=r"www\.[\w.-]+\.\bcom\b")[0]
    assert_same(got, np.array([True, True, False, False]))
    assert_same(evaluate(host, "RegexFullMatch", [s(shape=(0, 2))], pattern="a")[0], np.zeros((0, 2), bool))


def test_labels(host: Harness) -> None:
    words, unknown = s("a", "d", "a", "ü"), {"default_int64": 42}
    got = evaluate(
        host, "LabelEncoder", [words], keys_strings=["a", "b", "ü"], values_int64s=[0, 1, 2], default_int64=42
    )[0]
    assert_same(got, np.array([0, 42, 0, 2]))
    got = evaluate(host, "LabelEncoder", [words], keys_strings=["a", "d", "a"], values_strings=["x", "y", "z"])[0]
    assert_same(got, s("z", "y", "z", "_Unused"))
    numbers = np.array([1, np.nan, 3, 1], np.float32)
    got = evaluate(
        host,
        "LabelEncoder",
        [numbers],
        keys_floats=[1.0, float("nan")],
        values_strings=["one", "none"],
        default_string="-",
    )[0]
    assert_same(got, s("one", "none", "-", "one"))
    tables = {
        "keys_tensor": helper.make_tensor("k", TensorProto.STRING, [2], ["a", "ü"]),
        "values_tensor": helper.make_tensor("v", TensorProto.INT16, [2], [7, 9]),
        "default_tensor": helper.make_tensor("d", TensorProto.INT16, [1], [-3]),
    }
    assert_same(evaluate(host, "LabelEncoder", [words], **tables)[0], np.array([7, -3, 7, 9], np.int16))
    assert_same(
        evaluate(host, "LabelEncoder", [words], opset=1, classes_strings=["d", "a"])[0], np.array([1, 0, 1, -1])
    )
    table = {"cats_strings": ["a", "d"], "cats_int64s": [5, 6], "opset": 1}
    assert_same(evaluate(host, "CategoryMapper", [words], **table, **unknown)[0], np.array([5, 6, 5, 42]))
    assert_same(evaluate(host, "CategoryMapper", [np.array([6, 1])], **table, default_string="?")[0], s("d", "?"))


def test_one_hot(host: Harness) -> None:
    got = evaluate(host, "OneHotEncoder", [s("b", "c", "a")], opset=1, cats_strings=["b", "a"])[0]
    assert_same(got, np.array([[1, 0], [0, 0], [0, 1]], np.float32))
    got = evaluate(host, "OneHotEncoder", [np.array([[4.0, 2.5]], np.float32)], opset=1, cats_int64s=[2, 4])[0]
    assert_same(got, np.array([[[0, 1], [1, 0]]], np.float32))  # as ONNX says, floats are cast to integers
    got = evaluate(host, "OneHotEncoder", [np.array([-4, 12])], opset=1, cats_int64s=[12, 7, -4], zeros=0)[0]
    assert_same(got, np.array([[0, 0, 1], [1, 0, 0]], np.float32))
    with pytest.raises(Failed, match="element 1 is in no category"):
        evaluate(host, "OneHotEncoder", [s("b", "c")], opset=1, cats_strings=["b"], zeros=0)
    with pytest.raises(Failed, match="element 0 is in no category"):
        evaluate(host, "OneHotEncoder", [np.array([5, 2], np.int32)], opset=1, cats_int64s=[2], zeros=0)


def test_maps(host: Harness) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    names, numbers = {"classlabels_strings": ["a", "ü", ""]}, {"classlabels_int64s": [7, -1, 2]}
    (maps,) = host("t_op_zip_map", [x, s("a", "ü", "")])
    assert len(maps) == 2
    for (keys, values), row in zip(maps, x, strict=True):
        assert_same(keys, s("a", "ü", ""))
        assert_same(values, row)
    assert host("t_op_zip_map", [x[:0], np.array([7, -1, 2])]) == [[]]
    with pytest.raises(Failed, match="ZipMap of 2 columns with 3 keys"):
        host("t_op_zip_map", [x[:, :2], np.array([7, -1, 2])])
    assert load_graph(model("ZipMap", [x[0]], **names)).outputs[0].type.static_shape == (1,)
    with pytest.raises(ModelError, match="columns and labels of ZipMap"):
        load_graph(model("ZipMap", [x[:, :2]], **numbers))
    with pytest.raises(ModelError, match="with 3 integers and 3 strings"):
        load_graph(model("ZipMap", [x], **numbers, **names))
    scores = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, scores))
    taken = helper.make_value_info("maps", kind)
    graph = helper.make_graph([helper.make_node("Identity", ["maps"], ["y"])], "g", [taken], [taken])
    graph.output[0].name = "y"
    with pytest.raises(UnsupportedError, match="maps are supported as outputs only"):
        load_graph(helper.make_model(graph).SerializeToString())


TEXTS = s("a bb  ccc,dd", "", "héé ü", "aaa_1\n")


@pytest.mark.parametrize(
    ("wants", "tokens"),
    [
        ({"tokenexp": r"\w+"}, ["a bb ccc dd", "", "h", "aaa_1"]),
        ({"tokenexp": r"a|aa|_1"}, ["a", "", "", "aa a _1"]),
        ({"tokenexp": r"\b\w"}, ["a b c d", "", "h", "a"]),
        ({"tokenexp": "[a-zé]{2,3}"}, ["bb ccc dd", "", "héé", "aaa"]),
        ({"tokenexp": "a*", "mincharnum": 2}, ["", "", "", "aaa"]),
        ({"separators": [" ", "[,_]+"]}, ["a bb ccc dd", "", "héé ü", "aaa 1\n"]),
        ({"separators": [r"\s"], "mincharnum": 2}, ["bb ccc,dd", "", "héé", "aaa_1"]),
        ({"separators": [""]}, ["", "", "h é é   ü", ""]),
    ],
)
@pytest.mark.parametrize("mark", [0, 1])
def test_tokens(host: Harness, wants: dict[str, Any], tokens: list[str], mark: int) -> None:
    """As ONNX Runtime has them."""
    texts, rows = TEXTS, [t.split(" ") if t else [] for t in tokens]
    if wants.get("separators") == [""]:
        texts, rows = TEXTS[2:3], [list("héé ü")]
    rows = [["\x02", *r, "\x03"] for r in rows] if mark else rows
    wide = max(map(len, rows))
    want = s(*(t for r in rows for t in (*r, *"#" * (wide - len(r)))), shape=(len(rows), wide))
    assert_same(evaluate(host, "Tokenizer", [texts], mark=mark, pad_value="#", **{"mincharnum": 1, **wants})[0], want)


def test_tokens_of_nothing(host: Harness) -> None:
    assert_same(evaluate(host, "Tokenizer", [TEXTS], mark=1, tokenexp="[0-9]{2}")[0], s(shape=(4, 0)))
    assert_same(evaluate(host, "Tokenizer", [s(shape=(2, 0))], tokenexp=".")[0], s(shape=(2, 0, 0)))
    for wrong in ({"tokenexp": ".", "mincharnum": 2}, {"tokenexp": "a", "separators": ["b"]}, {}):
        with pytest.raises(ModelError, match="Tokenizer"):
            load_graph(model("Tokenizer", [TEXTS], **wrong))
    with pytest.raises(UnsupportedError, match="a separator '--', which is more than one code point"):
        load_graph(model("Tokenizer", [TEXTS], separators=[" ", "--"]))


def test_grams_of_strings(host: Harness) -> None:
    x = s("a", "b", "a", "b", "?", "c")
    pool = {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_strings": ["a", "c", "a", "b"]}
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "mode": "TF"}
    data = model("TfIdfVectorizer", [x], **pool, **lengths)
    assert_same(_run(host, data, [x])[0], np.array([2, 1, 2], np.float32))


@pytest.mark.parametrize(
    "op", ["StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "Cast", "Equal", "Tokenizer"]
)
def test_bytes_that_are_no_text(host: Harness, op: str) -> None:
    attributes = {
        "RegexFullMatch": {"pattern": "a"},
        "Tokenizer": {"tokenexp": "a"},
        "Cast": {"to": 1},
        "StringNormalizer": {"case_change_action": "LOWER"},
    }
    for bad in (b"\xff", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1"):
        x = s("1", bad)
        inputs = [x, x] if op in ("StringConcat", "Equal") else [x]
        with pytest.raises(Failed, match="operand 0: element 1 is not UTF-8 at byte"):
            _run(host, model(op, inputs, 2 if op == "StringSplit" else 1, **attributes.get(op, {})), inputs)


def test_attributes_that_are_no_text() -> None:
    for op, attributes in (
        ("StringSplit", {"delimiter": b"\xff"}),
        ("RegexFullMatch", {"pattern": b"a\xc3"}),
        ("StringNormalizer", {"stopwords": [b"\xff"]}),
        ("LabelEncoder", {"keys_strings": [b"\xff"], "values_int64s": [1]}),
    ):
        with pytest.raises(ModelError, match="not UTF-8"):
            load_graph(model(op, [s("a")], 2 if op == "StringSplit" else 1, **attributes))


def test_constants() -> None:
    for value, want in ((b"\xc3\xbc", s("ü", shape=())), ([b"a", b""], s("a", ""))):
        key = "value_string" if isinstance(value, bytes) else "value_strings"
        graph = load_graph(model("Constant", [], **{key: value}))
        found = graph.outputs[0].const
        assert found is not None
        assert_same(found, want)
    with pytest.raises(ModelError, match="not UTF-8"):
        load_graph(model("Constant", [], value_string=b"\xff"))


def test_compiled_with_constants_on_both_sides() -> None:
    """Keys for the host and numbers for the kernels behind it are weights of one file."""
    x = s("b", "c", "a")
    data = model("OneHotEncoder", [x], opset=1, cats_strings=["b", "a"])
    (got,) = backend.prepare(onnx.load_from_string(data)).run([x])
    assert_same(got, np.array([[1, 0], [0, 0], [0, 1]], np.float32))
