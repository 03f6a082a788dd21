"""A row's bits depend neither on how many rows there are, nor on threads, contexts or the order of calls.

Each network below has a symbolic number of rows. It is compiled once, and rows of small batches are compared with the
same rows among 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import torshc

from ..support.compilers import needed
from ..support.models import node
from ..support.networks import Network
from ..support.run_kernel import compilers, native_lanes
from ..support.slow import SLOW

Array = np.ndarray[Any, Any]
ROWS = 64
SIZES = (1, 2, 3, 7, 16, ROWS)
PRODUCTS = ((257, 33), (20, 5), (3000, 48))  # K, N
MORE_PRODUCTS = ((24, 100), (64, 64), (100, 16), (200, 40), (784, 10), (512, 130))


class Rows(Network):
    """Networks side by side over inputs of a symbolic number of rows, and the axis of the rows of each result.

    Attributes:
        inputs: shapes, "b" where the rows are.
        results: names of results, and the axis of their rows.
        ordered: results of which a row also depends on its number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inputs: dict[str, tuple[str | int, ...]] = {}
        self.results: dict[str, int] = {}
        self.ordered: set[str] = set()

    def input(self, *shape: str | int) -> str:
        name = "x" + "_".join(map(str, shape))
        self.inputs[name] = shape
        return name

    def result(self, name: str, value: str, axis: int = 0) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.results[name] = axis

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(n, 1, s) for n, s in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info(n) for n in self.results]
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "rows", inputs, outputs, weights)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=[*opsets, helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10)


def products_of_weights(sizes: Sequence[tuple[int, int]], doubles: int) -> Rows:
    """Products of weights, by each row of a batch and by three, so many of them of doubles too."""
    n = Rows()
    for k, columns in sizes:
        n.result(f"product_{k}_{columns}", n.linear(n.input("b", k), k, columns))
        n.result(f"product_of_three_{k}_{columns}", n.linear(n.input("b", 3, k), k, columns))
    for k, columns in sizes[:doubles]:
        wide = n.add("Cast", n.input("b", k), to=onnx.TensorProto.DOUBLE)
        weights = n.constant(n.rng.standard_normal((k, columns)), np.float64)
        n.result(f"doubles_{k}_{columns}", n.add("MatMul", f"{wide} {weights}"))
    return n


def products() -> Rows:
    """Products of weights, behind each other too, and of two operands."""
    n = products_of_weights(PRODUCTS, 1)
    x = n.input("b", 100)
    for k, columns in ((100, 256), (256, 64), (64, 10)):
        x = n.add("Gelu", n.linear(x, k, columns))
    n.result("perceptron", x)
    wide = n.input(2, "b", 72)
    n.result("product_of_matrices", n.add("MatMul", f"{wide} {n.weight(2, 72, 40)}"), axis=1)
    n.result("product_of_operands", n.add("MatMul", f"{wide} {n.input(2, 72, 40)}"), axis=1)
    n.result(
        "product_by_rows", n.add("MatMul", f"{n.input(50, 72)} {n.add('Transpose', wide, perm=[0, 2, 1])}"), axis=2
    )
    n.result("gemm", n.add("Gemm", f"{n.input('b', 100)} {n.weight(30, 100)} {n.weight(30, scale=1)}", transB=1))
    return n


def more_products() -> Rows:
    return products_of_weights(MORE_PRODUCTS, 4)


def narrow() -> Rows:
    """Products of weights that stay narrow, and of bytes."""
    n = Rows()
    for k, columns, bits in ((640, 704, 4), (640, 704, 8), (96, 720, 4)):
        packed = n.constant(n.rng.integers(0, 256, (columns, k // 32, 4 * bits)), np.uint8)
        scales = n.constant(n.rng.uniform(0.01, 0.1, (columns, k // 32)))
        form = {"K": k, "N": columns, "bits": bits, "block_size": 32, "domain": "com.microsoft"}
        n.result(f"of_{bits}_bits_{k}", n.add("MatMulNBits", f"{n.input('b', k)} {packed} {scales}", **form))
    x = n.input("b", 96)
    zero, one = n.constant(np.array(0), np.int8), n.constant(np.array(0.02))
    weights = n.constant(n.rng.integers(-127, 127, (96, 80)), np.int8)
    n.result("dequantised", n.add("MatMul", f"{x} {n.add('DequantizeLinear', f'{weights} {one} {zero}')}"))
    byte = n.add("QuantizeLinear", f"{x} {one} {n.constant(np.array(128), np.uint8)}")
    n.result("of_bytes", n.add("MatMulInteger", f"{byte} {weights} {n.constant(np.array(128), np.uint8)}"))
    return n


def recurrent() -> Rows:
    n = Rows()
    for op, gates, extra in (("LSTM", 4, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("RNN", 1, {})):
        for hidden, both in ((20, True), (96, False)):
            count, form = 1 + both, {"direction": "bidirectional"} if both else {}
            w, r = (n.weight(count, gates * hidden, size, scale=0.2) for size in (24, hidden))
            y = n.add(op, f"{n.input(6, 'b', 24)} {w} {r}", hidden_size=hidden, **form, **extra)
            n.result(f"{op}_{hidden}_{len(extra)}", y, axis=2)
    return n


def attention_of(depths: Sequence[tuple[int, int]]) -> Rows:
    """Attention of a batch, and of a number of queries over the same keys, with masks, with and without causality."""
    n = Rows()
    for depth, width in depths:
        q, k, v = (n.input("b", 2, length, d) for length, d in ((9, depth), (21, depth), (21, width)))
        n.result(f"attention_{depth}", n.add("Attention", f"{q} {k} {v}"))
        n.result(f"step_{depth}", n.add("Attention", f"{n.input('b', 2, 1, depth)} {k} {v}"))
        for keys in (21, 300):
            rows, k, v = n.input(1, 2, "b", depth), n.input(1, 2, keys, depth), n.input(1, 2, keys, width)
            n.result(f"queries_{depth}_{keys}", n.add("Attention", f"{rows} {k} {v}"), axis=2)
            n.result(f"causal_{depth}_{keys}", n.add("Attention", f"{rows} {k} {v}", is_causal=1), axis=2)
            n.ordered.add(f"causal_{depth}_{keys}")
            mask = n.input(1, 1, "b", keys)
            n.result(f"masked_{depth}_{keys}", n.add("Attention", f"{rows} {k} {v} {mask}"), axis=2)
    return n


def attention() -> Rows:
    n = attention_of([(24, 40)])
    mask = n.input("b", 1, 9, 21)
    q, k, v = n.input("b", 2, 9, 16), n.input("b", 2, 21, 16), n.input("b", 2, 21, 16)
    n.result("masked", n.add("Attention", f"{q} {k} {v} {mask}"))
    return n


def more_attention() -> Rows:
    return attention_of([(16, 16), (64, 64)])


def convolutions_of(sizes: Sequence[tuple[int, int]]) -> Rows:
    """Convolutions of so many channels and pixels a side, of each kind."""
    n = Rows()
    for channels, size in sizes:
        x = n.input("b", channels, size, size)
        for k, group in ((1, 1), (3, 1), (3, channels)):
            y = n.conv(x, channels, channels if group > 1 else 33, k, group=group)
            n.result(f"conv_{channels}_{size}_{k}_{group}", y)
        w = n.weight(channels, 21, 3, 3)
        n.result(f"transposed_{channels}_{size}", n.add("ConvTranspose", f"{x} {w}", strides=[2, 2]))
    return n


def convolutions() -> Rows:
    n = convolutions_of([(24, 2), (40, 7)])
    line = n.input("b", 32, 15)
    n.result("conv_of_lines", n.add("Conv", f"{line} {n.weight(48, 32, 3)}"))
    x = n.add("Flatten", n.add("GlobalAveragePool", n.conv(n.conv(n.input("b", 3, 13, 13), 3, 24, 3, 2), 24, 40, 3, 2)))
    n.result("network_of_images", n.linear(x, 40, 10))
    return n


def more_convolutions() -> Rows:
    return convolutions_of([(24, 1), (3, 13), (200, 1)])


def reductions() -> Rows:
    n = Rows()
    x = n.input("b", 11, 70)
    for axis in (1, 2):
        n.result(f"softmax_{axis}", n.add("Softmax", x, axis=axis))
        n.result(f"log_softmax_{axis}", n.add("LogSoftmax", x, axis=axis))
        sums = n.add("ReduceSum", f"{x} {n.constant(np.array([axis]), np.int64)}")
        n.result(f"sum_{axis}", sums)
        n.result(f"running_sum_{axis}", n.add("CumSum", f"{x} {n.constant(np.array(axis), np.int64)}"))
    turned = n.input(70, "b")
    n.result("sum_of_columns", n.add("ReduceSum", f"{turned} {n.constant(np.array([0]), np.int64)}"), axis=1)
    n.result("softmax_of_columns", n.add("Softmax", turned, axis=0), axis=1)
    n.result("norm", n.norm(x, 70))
    n.result("pool", n.add("AveragePool", n.input("b", 3, 13, 13), kernel_shape=[3, 3], strides=[2, 2]))
    n.nodes.append(node("TopK", f"{n.input('b', 784)} {n.constant(np.array([5]), np.int64)}", "values places"))
    n.result("largest", "values")
    indices = n.constant(n.rng.integers(0, 30, (1, 100)), np.int64)
    shape = n.add("Shape", n.input("b", 100))
    where = n.add("Expand", f"{indices} {shape}")
    n.result(
        "scattered",
        n.add("ScatterElements", f"{n.input('b', 30)} {where} {n.input('b', 100)}", axis=1, reduction="add"),
    )
    n.result("contraction", n.add("Einsum", f"{x} {n.weight(11, 70, 6)}", equation="bij,ijk->bk"))
    return n


SOME = (products, narrow, recurrent, attention, convolutions, reductions)
NETWORKS: Mapping[str, Callable[[], Rows]] = {
    f.__name__: f for f in (*SOME, more_products, more_attention, more_convolutions)
}


def batch(feeds: Mapping[str, Array], shapes: Mapping[str, tuple[str | int, ...]], rows: slice) -> dict[str, Array]:
    """Some rows of each input."""
    return {
        name: np.ascontiguousarray(array[tuple(rows if d == "b" else slice(None) for d in shapes[name])])
        for name, array in feeds.items()
    }


def compare(network: Rows, path: Path) -> tuple[int, list[str]]:
    """How many results were compared, and those of which a row differs in some bit: name, rows and what was tried."""
    rng, compared, wrong = np.random.default_rng(1), 0, []
    feeds = {}
    for name, shape in network.inputs.items():
        whole = tuple(d if isinstance(d, int) else ROWS for d in shape)
        feeds[name] = rng.standard_normal(whole, np.float32)
    with torshc.load(path, threads=1) as one, torshc.load(path, threads=2) as two, two.context(threads=1) as other:
        wanted = one.run(feeds)
        for size in (*SIZES, *reversed(SIZES)):
            for first in {0, 5 % (ROWS - size + 1), ROWS - size}:
                rows = slice(first, first + size)
                for how, model in (("one thread", one), ("two threads", two), ("a context", other)):
                    got = model.run(batch(feeds, network.inputs, rows))
                    for name, axis in network.results.items():
                        if first and name in network.ordered:
                            continue
                        part = (slice(None),) * axis + (rows,)
                        compared += 1
                        if got[name].tobytes() != np.ascontiguousarray(wanted[name][part]).tobytes():
                            wrong.append(f"{name}: {size} rows from {first} on, {how}")
    return compared, wrong


# Of vectors of 16, 8 and 4 lanes, whose tiles have other heights.
HOW = (("c", "native"), ("llvm", "native"), *((("c", "x86-64-v3"), ("c", "x86-64-v2")) if native_lanes() >= 8 else ()))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if make in SOME else SLOW) for name, make in NETWORKS.items()]
)
@pytest.mark.parametrize(
    ("cc", "target", "mcpu"),
    [
        pytest.param(cc, target, mcpu, marks=() if cc == compilers()[0] and (target, mcpu) == HOW[0] else SLOW)
        for cc in compilers()
        for target, mcpu in HOW
    ],
)
def test_rows_do_not_depend_on_their_number(
    name: str, cc: str, target: str, mcpu: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    network = NETWORKS[name]()
    onnx.save(network.model(), tmp_path / "m.onnx")
    torshc.compile(
        tmp_path / "m.onnx", tmp_path / "m.tsc", target=target, cc=needed(cc).name, mcpu=mcpu, exact_batches=True
    )
    compared, wrong = compare(network, tmp_path / "m.tsc")
    record_property("results compared", compared)
    assert not wrong
