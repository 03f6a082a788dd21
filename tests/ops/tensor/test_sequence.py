"""Sequences and optionals: their C functions under the sanitizers, and what is known of them at import."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.support.evaluate import run
from tests.support.seeded import seeded
from tests.templates.host_harness import Array, Failed, Harness, Held, Operand
from torshc.base.errors import ModelError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.expr import const
from torshc.formats import import_model
from torshc.graph import Graph
from torshc.passes.dead_code import dead_code

RNG = seeded(6)


@pytest.fixture(scope="module")
def host() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    assert harness.close() == 0


def some(*shape: int, kind: str = "f4") -> Array:
    if kind == "O":
        return RNG.choice(np.array(["", "a", "\u00e9\u00e9"], object), shape)
    return RNG.integers(0, 100, shape).astype(kind)


def same(got: object, want: object) -> None:
    """Equal tensors, sequences or optionals."""
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    if isinstance(want, Held):
        assert isinstance(got, Held)
        same(got.value, want.value)
        return
    if want is None:
        assert got is None
        return
    assert isinstance(got, np.ndarray) and isinstance(want, np.ndarray)
    assert got.dtype == want.dtype and got.shape == want.shape and got.tolist() == want.tolist()


MIXED = [some(2, 3), some(), some(0, 4), some(5)]


@pytest.mark.parametrize("elements", [[], MIXED[:1], MIXED, [some(2, kind="O"), some(3, kind="O")]], ids=len)
def test_sequences(host: Harness, elements: list[Array]) -> None:
    count, more = len(elements), some(2) if not elements or elements[0].dtype != object else some(1, kind="O")
    same(host("t_op_sequence_construct", list(elements), [count])[0], elements)
    same(host("t_op_sequence_length", [elements])[0], np.array(count))
    same(host("t_op_sequence_insert", [elements, more, None])[0], [*elements, more])
    for at in range(-count, count + 1):
        want = list(elements)
        want.insert(at, more)
        same(host("t_op_sequence_insert", [elements, more, np.array(at, "i4")])[0], want)
    for at in range(-count, count):
        same(host("t_op_sequence_at", [elements, np.array(at)])[0], elements[at])
        want = list(elements)
        del want[at]
        same(host("t_op_sequence_erase", [elements, np.array([at])])[0], want)
    if elements:
        same(host("t_op_sequence_erase", [elements, None])[0], elements[:-1])


@pytest.mark.parametrize("at", [3, -4, 2**62, -(2**63)])
def test_positions_out_of_range_end_a_run(host: Harness, at: int) -> None:
    position, three = np.array(at), [some(1), some(2), some(3)]
    cases: list[tuple[str, list[Operand]]] = [
        ("t_op_sequence_at", [three, position]),
        ("t_op_sequence_erase", [three, position]),
        ("t_op_sequence_insert", [three, some(1), position if at != 3 else np.array(4)]),
    ]
    for name, inputs in cases:
        with pytest.raises(Failed, match=r"position .* of a sequence of 3") as caught:
            host(name, inputs)
        assert caught.value.args[0] == 21
    with pytest.raises(Failed, match="2 positions"):
        host("t_op_sequence_at", [three, np.zeros(2, "i8")])
    with pytest.raises(Failed, match="is empty"):
        host("t_op_sequence_erase", [[], None])


@pytest.mark.parametrize("kind", ["f4", "u1", "f8", "O"])
def test_concat(host: Harness, kind: str) -> None:
    for shape in ((2, 3, 4), (3,), (2, 0), ()):
        same_shape = [some(*shape, kind=kind) for _ in range(3)]
        for axis in range(-len(shape) - 1, len(shape) + 1):
            same(host("t_op_concat_from_sequence", [same_shape], [axis, 1])[0], np.stack(same_shape, axis))
        for axis in range(-len(shape), len(shape)):
            parts = [some(*np.r_[shape[:axis], n, shape[axis:][1:]].astype(int), kind=kind) for n in (2, 0, 5)]
            same(host("t_op_concat_from_sequence", [parts], [axis, 0])[0], np.concatenate(parts, axis))


@pytest.mark.parametrize(
    ("elements", "n", "message"),
    [
        ([], [0, 0], "is empty"),
        ([some(2), some(3)], [0, 1], "element 1 does not fit"),
        ([some(2, 2), some(2)], [0, 0], "element 1 does not fit"),
        ([some(2), some(2, kind="i4")], [0, 0], "element 1 does not fit"),
        ([some(2)], [1, 0], "axis 1 of 1"),
        ([some(2)], [-3, 1], "axis -3 of 2"),
    ],
)
def test_what_cannot_be_joined(host: Harness, elements: list[Array], n: list[int], message: str) -> None:
    with pytest.raises(Failed, match=message):
        host("t_op_concat_from_sequence", [elements], n)


@pytest.mark.parametrize("kind", ["f4", "u1", "O"])
def test_split(host: Harness, kind: str) -> None:
    for shape in ((6,), (7, 2), (2, 5, 3), (0, 2), (3, 0)):
        x = some(*shape, kind=kind)
        for axis, length in enumerate(shape):
            each = [np.take(x, [i], axis) for i in range(length)]
            same(host("t_op_split_to_sequence", [x, None], [axis, 1])[0], each)
            same(host("t_op_split_to_sequence", [x, None], [axis, 0])[0], [e.squeeze(axis) for e in each])
            for size in (1, 2, 3, 100):
                want = np.split(x, range(size, length, size), axis) if length else []
                same(host("t_op_split_to_sequence", [x, np.array(size)], [axis, 0])[0], want)
            for sizes in ([length], [0, length, 0], [length // 2, length - length // 2]):
                want = np.split(x, np.cumsum(sizes)[:-1], axis)
                same(host("t_op_split_to_sequence", [x, np.array(sizes, "i4")], [axis, 1])[0], want)
    same(host("t_op_split_to_sequence", [some(0, 2), np.zeros(0, "i8")], [0, 1])[0], [])


@pytest.mark.parametrize("split", [0, -1, [1, 2], [-1, 5], [2**62, 2**62, 2**62], []], ids=str)
def test_splits_that_do_not_fit(host: Harness, split: int | list[int]) -> None:
    with pytest.raises(Failed, match=r"SplitToSequence: (a part has|the parts)"):
        host("t_op_split_to_sequence", [some(4), np.array(split, "i8")], [0, 1])


@pytest.mark.parametrize("x", [some(2, 3), some(), [some(2), some()], [], some(2, kind="O")], ids=str)
def test_optionals(host: Harness, x: Array | list[Array]) -> None:
    same(host("t_op_optional", [x])[0], Held(x))
    same(host("t_op_optional_has", [Held(x)])[0], np.array(True))
    same(host("t_op_optional_get", [Held(x)])[0], x)


def test_empty_optionals(host: Harness) -> None:
    same(host("t_op_optional", [None])[0], Held())
    same(host("t_op_optional_has", [Held()])[0], np.array(False))
    with pytest.raises(Failed, match="is empty"):
        host("t_op_optional_get", [Held()])


def imported(body: str, inputs: str, output: str) -> Graph:
    """The graph of a model in ONNX's text form, without the nodes that nothing reads."""
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({output}) {{ {body} }}'
    graph = import_model(onnx.parser.parse_model(text).SerializeToString())
    dead_code(graph, CompileOptions())
    return graph


TWO = "one = Constant<value_int=1>() two = Constant<value_int=2>() "


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("s = SequenceEmpty() t = SequenceInsert(s, x) u = SequenceInsert(t, z) y = SequenceAt(u, one)", "z"),
        ("s = SequenceConstruct(x, z, x) t = SequenceErase(s) u = SequenceErase(t, one) y = SequenceAt(u, l)", "x"),
        ("s = SequenceConstruct(x, z) t = SequenceInsert(s, x, one) y = ConcatFromSequence<axis=0>(t)", "x x z"),
        ("s = SplitToSequence<axis=0>(x, two) y = SequenceAt(s, one)", "2:4"),
        ("s = SplitToSequence<keepdims=0>(x) y = ConcatFromSequence<axis=-1, new_axis=1>(s)", "T"),
        ("o = Optional(z) y = OptionalGetElement(o)", "z"),
        ("s = SequenceConstruct(x, z) o = Optional(s) t = OptionalGetElement(o) y = SequenceAt(t, one)", "z"),
        ("y = OptionalGetElement(x)", "x"),
    ],
)
def test_known_elements_need_no_host(body: str, want: str) -> None:
    graph = imported(TWO + "l = Constant<value_int=-1>() " + body, "float[5, 3] x, float[2, 3] z", "float[M, N] y")
    assert not [n for n in graph.nodes if n.op.family == "host"]
    x, z = some(5, 3), some(2, 3)
    answers = {"x": x, "z": z, "x x z": np.concatenate([x, x, z]), "2:4": x[2:4], "T": np.stack(list(x), -1)}
    same(run(graph, {"x": x, "z": z})[0], answers[want])


def test_what_is_known_about_lengths() -> None:
    body = "s = SequenceConstruct(x, x) t = SequenceInsert(s, x, p) a = SequenceLength(s) y = SequenceLength(t)"
    graph = imported(body + " z = Add(a, y)", "float[3] x, int64 p", "int64 z")
    length, add = (next(n for n in graph.nodes if n.op.name == name) for name in ("SequenceLength", "Add"))
    assert add.inputs[0] is not None and add.inputs[0].const is not None and add.inputs[0].const == 2
    assert length.output.data == length.inputs[0].shape
    body = "n = Shape(x) p = ConstantOfShape<value = int64[1] {2}>(n) s = SplitToSequence(x, p) y = SequenceAt(s, i)"
    graph = imported(body, "float[N] x, int64 i", "float[M] y")
    assert graph.outputs[0].shape == (const(2),)
    graph = imported("y = OptionalHasElement(x)", "float[3] x", "bool y")
    assert graph.outputs[0].const is not None and graph.outputs[0].const.tolist() is True
    graph = imported("y = OptionalHasElement()", "float[3] x", "bool y")
    assert graph.outputs[0].const is not None and graph.outputs[0].const.tolist() is False


def test_types() -> None:
    body = "s = SequenceConstruct(x, z) t = SequenceInsert(s, x, p) y = SequenceAt(t, p)"
    graph = imported(body, "float[5, 3] x, float[2, 3] z, int64 p", "float[M, 3] y")
    (out,) = graph.outputs
    assert out.shape[0].op == "dim" and out.shape[1] is const(3)
    body = "s = SplitToSequence<axis=1>(x, p) y = SequenceAt(s, p)"
    assert imported(body, "float[5, 3] x, int64 p", "float[5, N] y").outputs[0].shape[0] is const(5)
    body = "e = SequenceEmpty() t = SequenceInsert(e, x, p) y = SequenceAt(t, p)"
    assert imported(body, "float[5, 3] x, int64 p", "float[5, 3] y").outputs[0].type.static_shape == (5, 3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("s = SequenceConstruct(x, z) y = SequenceAt(s, two)", "position 2 of a sequence of 2"),
        (
            "s = SequenceConstruct(x, z) t = SequenceErase(s, two) y = SequenceAt(t, two)",
            "position 2 of a sequence of 2",
        ),
        ("s = SequenceEmpty() t = SequenceInsert(s, x, one) y = SequenceAt(t, one)", "position 1 of a sequence of 0"),
        ("s = SequenceEmpty() y = ConcatFromSequence<axis=0>(s)", "an empty sequence"),
        ("s = SequenceConstruct(x, i) y = SequenceLength(s)", "of different types, f32.* and i64"),
        ("y = SequenceLength(x)", "cannot be f32"),
        ("p = Constant<value_ints=[3, 3]>() s = SplitToSequence(x, p) y = SequenceAt(s, i)", "dimension of 5 into"),
    ],
)
def test_what_does_not_fit(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        imported(TWO + body, "float[5, 3] x, float[2, 3] z, int64 i", "float[M, N] y")


def test_an_element_of_any_rank_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="of unknown rank"):
        imported("s = SequenceConstruct(x, z) y = SequenceAt(s, i)", "float[5, 3] x, float[2] z, int64 i", "float[M] y")
