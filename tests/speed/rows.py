"""What `make bench-operators` measures: operators with their shapes, types and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..support.models import MICROSOFT as DOMAIN
from .operands import shape_of


@dataclass(frozen=True)
class Row:
    """An operator with its operands.

    Attributes:
        operands: as :mod:`tests.speed.operands` reads them.
        note: what the label says beside the first operand's shape.
        compared: whether the results are the same at each run.
    """

    op: str
    operands: str
    type: str = "f32"
    note: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    version: int = 20
    compared: bool = True

    @property
    def label(self) -> str:
        return f"{shape_of(self.operands)} {self.note}".strip()


def all_rows() -> Iterator[Row]:
    for make in (
        pointwise,
        comparisons,
        products,
        quantised,
        convolutions,
        reductions,
        moves,
        sequences,
        others,
        contrib,
    ):
        yield from make()


def each(
    ops: str, operands: Sequence[str], types: str = "f32", form: dict[str, Any] | None = None, **more: Any
) -> Iterator[Row]:
    """Rows of operators: all operands in the first type, the middle ones in the others."""
    first, *others = types.split()
    for op in ops.split():
        for text in operands:
            yield Row(op, text, first, attributes=form or {}, **more)
        for type_ in others:
            yield Row(op, operands[len(operands) // 2], type_, attributes=form or {}, **more)


# -- a result's element from an element ----------------------------------------------------------------------------

UNARY = ("1000", "64x1024", "64x16384")


def within(low: float, high: float) -> tuple[str, ...]:
    return tuple(f"{s}[{low}..{high}]" for s in UNARY)


def pointwise() -> Iterator[Row]:
    yield from each("Abs Ceil Floor Neg Relu Sigmoid Tanh Exp Erf", UNARY, "f32 f64 f16")
    yield from each("Elu Celu Selu HardSigmoid HardSwish LeakyRelu Mish Round Sign Softplus Softsign", UNARY[1:])
    yield from each("ThresholdedRelu Shrink Sin Cos Tan Atan Sinh Cosh Asinh Identity Gelu IsNaN", UNARY[1:])
    yield from each("Swish", UNARY[1:], version=24)
    yield from each("Gelu", UNARY[1:], form={"approximate": "tanh"}, note="tanh")
    yield from each("IsInf", UNARY[1:])
    yield from each("Log Sqrt Reciprocal", within(0.1, 2), "f32 f64 f16")
    yield from each("Asin Acos Atanh", within(-0.9, 0.9)[1:])
    yield from each("Acosh", within(1, 3)[1:])
    yield from each("Clip", [f"{s} =-1 =1" for s in UNARY], "f32 f64 i8")
    yield from each("PRelu", [f"{s} !{s.split('x')[-1]}" for s in UNARY])
    yield from each("Add Sub Mul Div", [f"{s} {s}" for s in UNARY], "f32 f64 f16")
    for other, note in (("1024", "a row"), ("64x1", "a column")):
        yield from each("Add Mul", [f"64x1024 {other}"], note=note)
    yield from each("Add Mul", ["8x64x56x56 64x1x1"], note="channels")
    yield from each("Add Mul", ["64x16384[0..9] 64x16384[0..9]"], "i32")
    yield from each("Add Mul", ["64x16384[0..9] 64x16384[0..9]"], "i64")
    for type_ in ("i64", "i32"):
        yield from each("Div Mod", ["64x1024[0..99] 64x1024[1..9]"], type_)
        yield from each("Div Mod", ["64x1024[0..99] =7"], type_, note="by 7")
    yield from each("Mod", ["64x1024 64x1024"], form={"fmod": 1})
    yield from each("Pow", ["64x1024[0.1..2] 64x1024"])
    yield from each("Pow", ["64x1024[0.1..2] =2"], note="of 2")
    yield from each("Pow", ["64x1024[0.1..2] =0.5"], note="of 0.5")
    yield from each("Max Min Sum Mean", ["64x1024 64x1024", "64x16384 64x16384"])
    yield from each("Max Min", ["64x16384 64x16384"], "i32")
    casts = [("f32", "f16", 10), ("f16", "f32", 1), ("f32", "i32", 6), ("i64", "f32", 1), ("u8", "f32", 1),
             ("f32", "u8", 2), ("f32", "bool", 9), ("f32", "f64", 11), ("i32", "i64", 7)]  # fmt: skip
    for type_, to, code in casts:
        yield Row("Cast", "64x16384[0..99]", type_, f"to {to}", {"to": code})
    yield from each("CastLike", ["64x16384 f16:1"], note="f16")
    yield from each("Dropout", ["64x16384"])
    yield from each("Dropout", ["64x1024 =0.5 =bool:1"], note="training", compared=False)


def comparisons() -> Iterator[Row]:
    yield from each("Equal Greater GreaterOrEqual Less LessOrEqual", ["64x1024 64x1024", "64x16384 64x16384"])
    yield from each("Equal Less", ["64x1024 64x1024"], "i64")
    yield from each("And Or Xor", ["64x1024 64x1024", "64x16384 64x16384"], "bool")
    yield from each("Not", UNARY[1:], "bool")
    yield from each("BitwiseAnd BitwiseOr BitwiseXor", ["64x1024 64x1024"], "i32")
    yield from each("BitwiseNot", ["64x1024"], "i32")
    yield Row("BitShift", "64x1024[0..99] 64x1024[0..7]", "u8", attributes={"direction": "LEFT"})
    yield from each("Where", ["bool:64x1024 64x1024 64x1024", "bool:64x16384 64x16384 64x16384"])
    yield from each("Where", ["bool:8x1x128x128 8x12x128x128 =-1e9"], note="a mask")
    yield from each("Where", ["bool:64x1024 64x1024 64x1024"], "i64")


# -- products ------------------------------------------------------------------------------------------------------


def matmul(op: str, m: int, k: int, n: int, type_: str, fixed: bool = True, **more: Any) -> Row:
    """A product; the second factor is a constant, or else an operand."""
    return Row(op, f"{m}x{k} {'!' * fixed}{k}x{n}", type_, f"x{n}{'' if fixed else ' run'}", **more)


def products() -> Iterator[Row]:
    for m in (1, 4, 16, 128):
        yield matmul("MatMul", m, 1024, 1024, "f32")
    yield matmul("MatMul", 512, 512, 512, "f32")
    yield matmul("MatMul", 4, 768, 3072, "f32")
    yield matmul("MatMul", 128, 512, 512, "f32", fixed=False)
    yield matmul("MatMul", 1, 512, 512, "f32", fixed=False)
    for m, n in ((1, 512), (16, 512), (256, 256)):
        yield matmul("MatMul", m, n, n, "f64")
    yield matmul("MatMul", 128, 256, 256, "f64", fixed=False)
    yield matmul("MatMul", 128, 512, 512, "f16")
    yield matmul("MatMul", 64, 128, 128, "i32")
    yield from each("MatMul", ["12x128x64 12x64x128", "12x128x128 12x128x64"], note="batched")
    yield from each("MatMul", ["8x64x64 8x64x64"], "f64", note="batched")
    yield from each("Gemm", ["1x1024 !1000x1024 !1000", "128x768 !768x768 !768"], "f32", {"transB": 1}, note="transB")
    yield from each("Gemm", ["64x256 !256x256 !256"], "f64", {"transB": 1}, note="transB")
    yield from each("Gemm", ["256x128 256x256"], form={"transA": 1}, note="transA run")
    yield Row("Einsum", "8x128x64 8x64x128", note="bij,bjk", attributes={"equation": "bij,bjk->bik"})
    yield Row("Einsum", "4x64x8x32 4x64x8x32", note="bihd,bjhd", attributes={"equation": "bihd,bjhd->bhij"})
    yield from each("Det", ["64x4x4", "8x16x16"])
    attention = "1x12x128x64 1x12x128x64 1x12x128x64"
    yield Row("Attention", attention, version=23)
    yield Row("Attention", attention, note="causal", attributes={"is_causal": 1}, version=23)


# -- integers of 8 bits --------------------------------------------------------------------------------------------


def quantised() -> Iterator[Row]:
    for shape in UNARY:
        yield Row("QuantizeLinear", f"{shape} =0.02 =u8:128", "f32", "u8", version=13)
        yield Row("QuantizeLinear", f"{shape} =0.02 =i8:0", "f32", "i8", version=13)
        yield Row("DequantizeLinear", f"u8:{shape}[0..255] =f32:0.02 =u8:128", "u8", version=13)
    yield Row("QuantizeLinear", "64x1024 !1024[0.01..0.02] !i8:1024[0..3]", "f32", "axis 1", version=13)
    yield Row("DequantizeLinear", "i8:64x1024 !f32:1024[0.01..0.02] !i8:1024[0..3]", "i8", "axis 1", version=13)
    yield Row("DequantizeLinear", "i8:1024x1024 !f32:1024[0.01..0.02]", "i8", "axis 0", {"axis": 0}, version=13)
    yield from (Row("DynamicQuantizeLinear", s, outputs=3) for s in UNARY)
    for m in (1, 16, 128):
        yield Row("MatMulInteger", f"u8:{m}x512 !i8:512x512[-64..63] =u8:7", "u8", "x512")
        tail = "=f32:0.02 =u8:128 !i8:512x512[-64..63] =f32:0.01 =i8:0 =f32:0.5 =u8:128"
        yield Row("QLinearMatMul", f"u8:{m}x512[0..255] {tail}", "u8", "x512")
    yield Row("ConvInteger", "u8:1x64x28x28 !u8:64x64x3x3 =u8:7", "u8", "3x3", {"pads": [1] * 4})
    scales = "=f32:0.01 =i8:0 =f32:0.5 =u8:128"
    for shape, weight, form in (
        ("1x64x28x28", "64x64x3x3", {"pads": [1] * 4}), ("1x64x56x56", "128x64x1x1", {}),
        ("1x64x56x56", "64x1x3x3", {"pads": [1] * 4, "group": 64}),
    ):  # fmt: skip
        operands = f"u8:{shape}[0..255] =f32:0.02 =u8:128 !i8:{weight}[-64..63] {scales}"
        yield Row("QLinearConv", operands, "u8", weight.split("x", 1)[1], form)


# -- windows -------------------------------------------------------------------------------------------------------


def convolutions() -> Iterator[Row]:
    for x, w, form in (
        ("1x3x112x112", "32x3x3x3", {"strides": [2, 2], "pads": [1] * 4}),
        ("1x64x28x28", "64x64x3x3", {"pads": [1] * 4}),
        ("1x64x56x56", "128x64x1x1", {}), ("1x64x56x56", "64x1x3x3", {"pads": [1] * 4, "group": 64}),
        ("1x32x28x28", "32x8x3x3", {"pads": [1] * 4, "group": 4}), ("1x3x56x56", "16x3x7x7", {"pads": [3] * 4}),
    ):  # fmt: skip
        yield Row("Conv", f"{x} !{w} !{w.split('x')[0]}", "f32", w, form)
    yield Row("Conv", "1x64x256 !64x64x3", "f32", "64x64x3", {"pads": [1, 1]})
    yield Row("Conv", "1x8x8x16x16 !8x8x3x3x3", "f32", "8x8x3x3x3", {"pads": [1] * 6})
    yield Row("Conv", "1x16x28x28 !16x16x3x3", "f16", "16x16x3x3", {"pads": [1] * 4})
    yield Row("ConvTranspose", "1x64x28x28 !64x32x2x2", note="2x2", attributes={"strides": [2, 2]})
    yield Row("ConvTranspose", "1x32x14x14 !32x32x3x3", note="3x3", attributes={"pads": [1] * 4})
    yield Row("DeformConv", "1x8x16x16 !8x8x3x3 1x18x14x14", note="3x3")
    for op in ("MaxPool", "AveragePool"):
        yield Row(op, "1x64x56x56", note="2x2", attributes={"kernel_shape": [2, 2], "strides": [2, 2]})
        form = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
        yield Row(op, "1x64x56x56", note="3x3", attributes=form)
    yield Row("MaxPool", "1x16x56x56", "f64", "2x2", {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Row("MaxPool", "1x64x56x56[0..99]", "u8", "2x2", {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Row("LpPool", "1x64x28x28", note="2x2", attributes={"kernel_shape": [2, 2], "strides": [2, 2]})
    yield from each("GlobalAveragePool GlobalMaxPool GlobalLpPool", ["1x64x7x7", "8x64x56x56"])
    yield Row("LRN", "1x32x28x28", note="5", attributes={"size": 5})
    yield Row("Col2Im", "1x288x784 =i64:28,28 =i64:3,3", note="3x3", attributes={"pads": [1] * 4})
    halves = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Row("MaxUnpool", "1x16x28x28 i64:1x16x28x28[0..50176]", attributes=halves, compared=False)
    rois = "!f32:16x4[0..28] !i64:16[0..1]"
    yield Row("RoiAlign", f"1x32x28x28 {rois}", note="7x7", attributes={"output_height": 7, "output_width": 7})
    yield Row("GridSample", "1x16x32x32 1x32x32x2[-1..1]", note="linear")
    yield Row("AffineGrid", "2x2x3 =i64:2,3,64,64")
    for mode in ("nearest", "linear", "cubic"):
        yield Row("Resize", "1x16x32x32 _ =f32:1,1,2,2", note=mode, attributes={"mode": mode})


# -- rows and sums -------------------------------------------------------------------------------------------------

ROWS = ("4096x16", "1024x128", "64x4096")


def reductions() -> Iterator[Row]:
    yield from each("Softmax LogSoftmax", ROWS, "f32 f64 f16", {"axis": -1})
    yield from each("Softmax LogSoftmax", ["64x128x32"], form={"axis": 1}, note="axis 1")
    yield from each("Hardmax", ROWS[1:])
    yield from each("LpNormalization", ROWS)
    yield from each("LayerNormalization", [f"{s} !{s.split('x')[1]} !{s.split('x')[1]}" for s in ROWS], "f32 f64")
    yield from each("RMSNormalization", [f"{s} !{s.split('x')[1]}" for s in ROWS], version=23)
    yield from each("InstanceNormalization", ["1x32x56x56 !32 !32"])
    yield Row("GroupNormalization", "1x32x56x56 !32 !32", attributes={"num_groups": 8}, version=21)
    yield Row("BatchNormalization", "1x64x56x56 !64 !64 !64 !64[0.5..1]")
    yield Row("MeanVarianceNormalization", "1x32x56x56")
    sums = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp"
    for op in (sums + " ReduceLogSum").split():
        for axes, note in (("-1,", "rows"), ("0,", "columns"), ("0,1", "all")):
            yield Row(op, f"512x1024[0.9..1.1] =i64:{axes}", "f32", note, {"keepdims": 0})
    for op in ("ReduceSum", "ReduceMean", "ReduceMax"):
        yield Row(op, "4096x16 =i64:-1,", "f32", "rows", {"keepdims": 0})
        yield Row(op, "16x64x1024 =i64:1,", "f32", "middle", {"keepdims": 0})
        yield Row(op, "512x1024 =i64:-1,", "f64", "rows", {"keepdims": 0})
        yield Row(op, "512x1024 =i64:0,1", "f64", "all", {"keepdims": 0})
        yield Row(op, "512x1024 =i64:-1,", "i32", "rows", {"keepdims": 0})
    yield Row("ReduceSum", "2048x2048 =i64:0,1", "f32", "all", {"keepdims": 0})
    yield Row("ReduceMax", "512x1024[0..99] =i64:-1,", "u8", "rows", {"keepdims": 0})
    for op in ("ArgMax", "ArgMin"):
        yield Row(op, "512x1024", note="rows", attributes={"axis": 1, "keepdims": 0})
        yield Row(op, "512x1024", note="columns", attributes={"axis": 0, "keepdims": 0})
    for shape in ("64x1024", "1024x64"):
        yield Row("CumSum", f"{shape} =i64:1", note="axis 1")
        yield Row("CumSum", f"{shape} =i64:0", note="axis 0")
    for shape, k in (("1x1000", "5,"), ("64x1000", "5,"), ("64x1000", "100,")):
        yield Row("TopK", f"{shape} =i64:{k}", note=f"k {k[:-1]}", outputs=2)
    yield Row("DFT", "8x256x1 _ =i64:1", note="onesided", attributes={"onesided": 1})
    yield Row("STFT", "1x4096x1 =i64:128 !256", note="256")


# -- what moves elements -------------------------------------------------------------------------------------------


def moves() -> Iterator[Row]:
    for shape, perm in (("512x1024", "10"), ("8x128x12x64", "0213"), ("1x64x56x56", "0231"), ("1x56x56x64", "0312")):
        for type_ in ("f32", "u8") if perm == "10" else ("f32",):
            yield Row("Transpose", shape, type_, perm, {"perm": [int(p) for p in perm]})
    yield from (Row("Concat", f"{s} {s}", note="axis 1", attributes={"axis": 1}) for s in ("64x1024", "1x64x56x56"))
    yield Row("Concat", "1024x16 1024x16", note="axis -1", attributes={"axis": -1})
    yield Row("Split", "64x3072", note="3", attributes={"axis": 1, "num_outputs": 3}, outputs=3)
    yield Row("Slice", "64x4096 =i64:100, =i64:3000, =i64:1,", note="axis 1")
    yield Row("Slice", "64x4096 =i64:0, =i64:4096, =i64:1, =i64:2,", note="step 2")
    yield Row("Slice", "64x4096 =i64:-1, =i64:-5000, =i64:1, =i64:-1,", note="step -1")
    yield Row("Pad", "1x64x56x56 =i64:0,0,1,1,0,0,1,1", note="constant")
    yield Row("Pad", "1x64x56x56 =i64:0,0,1,1,0,0,1,1", note="reflect", attributes={"mode": "reflect"})
    yield Row("Pad", "1x64x56x56 =i64:0,0,1,1,0,0,1,1", note="edge", attributes={"mode": "edge"})
    yield Row("Expand", "64x1x128 =i64:64,64,128")
    yield Row("Expand", "64x128x1 =i64:64,128,64")
    yield Row("Tile", "64x128 =i64:4,8")
    yield Row("Reshape", "64x1024 =i64:128,512")
    yield Row("Flatten", "64x32x32")
    yield Row("Squeeze", "64x1x1024 =i64:1,")
    yield Row("Unsqueeze", "64x1024 =i64:1,")
    yield Row("Gather", "!30000x256 i64:128[0..30000]", note="axis 0")
    yield Row("Gather", "512x1024 !i64:256[0..1024]", note="axis 1", attributes={"axis": 1})
    yield Row("GatherElements", "512x1024 i64:512x1024[0..1024]", note="axis 1", attributes={"axis": 1})
    yield Row("GatherElements", "512x1024 i64:512x1024[0..512]", note="axis 0", attributes={"axis": 0})
    yield Row("GatherND", "128x64x64 i64:512x1[0..128]")
    yield Row("ScatterND", "512x256 !i64:64x1[0..512] 64x256", compared=False)
    yield Row("ScatterElements", "512x256 i64:64x256[0..512] 64x256", compared=False)
    yield Row("ScatterElements", "512x256 i64:64x256[0..512] 64x256", note="add", attributes={"reduction": "add"})
    yield Row("DepthToSpace", "1x64x56x56", attributes={"blocksize": 2})
    yield Row("SpaceToDepth", "1x64x56x56", attributes={"blocksize": 2})
    yield Row("OneHot", "i64:4096[0..64] =i64:64 =0,1")
    yield Row("Trilu", "8x256x256")
    yield Row("EyeLike", "512x512")
    yield Row("ReverseSequence", "128x64x64 !i64:64[1..128]")
    yield Row("NonZero", "64x1024[0..2]", "i32")
    yield Row("Compress", "512x256 bool:512", attributes={"axis": 0})
    yield Row("Unique", "4096[0..99]", "i64")
    yield Row("ConstantOfShape", "=i64:64,1024", compared=True)
    yield Row("Range", "=0 =65536 =1")


# -- rows that depend on rows before -------------------------------------------------------------------------------


SMALL = "[-0.1..0.1]"  # weights with which states do not saturate


def sequences() -> Iterator[Row]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch in ((32, 1), (32, 16)):
            weights = f"!1x{gates * 128}x64{SMALL} !1x{gates * 128}x128{SMALL} !1x{gates * 256}{SMALL}"
            yield Row(op, f"{steps}x{batch}x64 {weights}", note="128", attributes={"hidden_size": 128})


def others() -> Iterator[Row]:
    yield Row("NonMaxSuppression", "1x256x4[0..1] 1x4x256[0..1] =i64:16 =0.5 =0.1", compared=False)
    yield from each("Bernoulli", ["64x1024[0..1]"], compared=False)
    yield from each("RandomNormalLike RandomUniformLike", ["64x1024"], compared=False)
    yield Row("Multinomial", "64x100", attributes={"sample_size": 8}, compared=False)
    yield from each("HannWindow HammingWindow BlackmanWindow", ["=i64:4096"])
    yield Row("MelWeightMatrix", "=i64:80 =i64:400 =i64:16000 =f32:0 =f32:8000")
    yield Row("RotaryEmbedding", "1x8x128x64 128x32 128x32 i64:1x128[0..128]", version=23)
    ml: dict[str, Any] = {"domain": "ai.onnx.ml"}
    yield Row("Normalizer", "512x64", note="L2", attributes={"norm": "L2"}, **ml)
    yield Row("Scaler", "512x64", attributes={"offset": [0.5] * 64, "scale": [2.0] * 64}, **ml)
    yield Row("Binarizer", "512x64", attributes={"threshold": 0.5}, **ml)
    yield Row("Imputer", "512x64", attributes={"imputed_value_floats": [0.5], "replaced_value_float": 1.0}, **ml)
    yield Row("ArrayFeatureExtractor", "512x64 !i64:1x8[0..64]", **ml)
    yield Row("LinearRegressor", "512x64", attributes={"coefficients": [0.5] * 64, "intercepts": [1.0]}, **ml)
    yield from each("RandomNormal RandomUniform", [""], form={"shape": [64, 1024]}, note="64x1024", compared=False)
    yield from each("Shape Size", ["64x1024"])


# -- com.microsoft -------------------------------------------------------------------------------------------------


def few_bits(m: int, bits: int, k: int = 1024, n: int = 1024) -> Row:
    weights = f"!u8:{n}x{k // 32}x{4 * bits}[0..255] !{n * k // 32}[0.01..0.02]"
    form = {"K": k, "N": n, "bits": bits, "block_size": 32}
    return Row("MatMulNBits", f"{m}x{k} {weights}", note=f"{bits} bits", attributes=form, domain=DOMAIN)


def contrib() -> Iterator[Row]:
    yield from (few_bits(m, 4) for m in (1, 16, 128))
    yield from (few_bits(m, 8) for m in (1, 128))
    yield from each("Gelu QuickGelu", UNARY[1:], domain=DOMAIN)
    yield from each("BiasGelu FastGelu", ["128x3072 !3072"], domain=DOMAIN)
    tables = "1x128x768 1x128x768 !768 !768"
    yield Row("SkipLayerNormalization", tables, domain=DOMAIN)
    yield Row("SkipSimplifiedLayerNormalization", "1x128x768 1x128x768 !768", domain=DOMAIN)
    yield Row("EmbedLayerNormalization", "i32:1x128[0..1000] i32:1x128[0..2] !1000x768 !512x768 !2x768 !768 !768",
              outputs=2, domain=DOMAIN, compared=False)  # fmt: skip
    yield Row("FusedMatMul", "128x512 !512x512", note="transB", attributes={"transB": 1, "alpha": 0.5}, domain=DOMAIN)
    heads = {"num_heads": 12}
    yield Row("MultiHeadAttention", "1x128x768 1x128x768 1x128x768", attributes=heads, domain=DOMAIN)
    yield Row("Attention", f"1x128x768 !768x2304{SMALL} !2304{SMALL}", attributes=heads, domain=DOMAIN)
    yield Row("RotaryEmbedding", "1x128x512 i64:1x128[0..128] !128x32 !128x32",
              attributes={"num_heads": 8}, domain=DOMAIN)  # fmt: skip
    pair = "=f32:0.02 =u8:128"
    yield from each("QLinearAdd QLinearMul", [f"u8:64x16384 {pair} u8:64x16384 {pair} {pair}"], "u8", domain=DOMAIN)
    yield from each("QLinearSigmoid QLinearLeakyRelu", [f"u8:64x16384 {pair} {pair}"], "u8", domain=DOMAIN)
    yield Row("QLinearGlobalAveragePool", f"u8:1x64x56x56 {pair} {pair}", "u8", domain=DOMAIN)
    form = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Row("QLinearAveragePool", f"u8:1x64x56x56 {pair} {pair}", "u8", "2x2", form, domain=DOMAIN)
    yield Row(
        "QLinearConcat", f"{pair} u8:64x4096 {pair} u8:64x4096 {pair}", "u8", attributes={"axis": 1}, domain=DOMAIN
    )
    yield Row("QLinearSoftmax", "u8:1024x128 =f32:0.1 =u8:0 =f32:0.00390625 =u8:0", "u8",
              attributes={"axis": -1, "opset": 13}, domain=DOMAIN)  # fmt: skip
    for m in (1, 128):
        yield Row("DynamicQuantizeMatMul", f"{m}x512 !i8:512x512[-64..63] =0.01", "f32", "x512", domain=DOMAIN)
        yield Row("MatMulIntegerToFloat", f"u8:{m}x512 !i8:512x512[-64..63] =f32:0.02 =f32:0.01 =u8:9", "u8", "x512",
                  domain=DOMAIN)  # fmt: skip
    yield Row("FusedConv", "1x64x28x28 !64x64x3x3 !64", note="Relu", attributes={"pads": [1] * 4, "activation": "Relu"},
              domain=DOMAIN)  # fmt: skip
    yield Row("FusedGemm", "128x512 !512x512 !512", note="Relu", attributes={"activation": "Relu"}, domain=DOMAIN)
    yield Row("TransposeMatMul", "128x512 !512x512", note="transB", attributes={"transB": 1}, domain=DOMAIN)
    yield Row("QGemm", f"u8:128x512 {pair} !i8:512x512[-64..63] =f32:0.01 =i8:0", "u8", "x512", domain=DOMAIN)
    yield Row("QLinearWhere", f"bool:64x16384 u8:64x16384 {pair} u8:64x16384 {pair} {pair}", "u8", domain=DOMAIN)
    yield Row("NhwcMaxPool", "u8:1x56x56x64", "u8", "2x2", form, domain=DOMAIN)
    yield from each("CDist", ["256x64 256x64"], form={"metric": "euclidean"}, domain=DOMAIN)
    yield from each("Inverse", ["16x16x16"], domain=DOMAIN, compared=False)
    yield from each("Trilu", ["8x256x256"], domain=DOMAIN)
    yield from each("Unique", ["4096[0..99]"], domain=DOMAIN, outputs=3)
    cache = "1x4x256x64 1x4x256x64 =i32:128, =i32:129"
    grouped = {"num_heads": 8, "kv_num_heads": 4}
    yield Row("GroupQueryAttention", f"1x1x512 1x1x256 1x1x256 {cache}", note="a step", attributes=grouped, outputs=3,
              domain=DOMAIN, compared=False)  # fmt: skip
    scales = "=f32:0.002 =f32:0.01 _ =u8:128 =i8:0"
    yield Row("QAttention", f"u8:1x128x768 !i8:768x2304[-64..63] !f32:2304 {scales}", "u8", attributes=heads,
              domain=DOMAIN)  # fmt: skip


# Operators without a row, by why.
WITHOUT = {
    "sequences, optional values or strings": """
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SplitToSequence RegexFullMatch StringConcat StringNormalizer
        StringSplit TfIdfVectorizer CategoryMapper ZipMap Tokenizer""",
    "a constant, or no kernel of ONNX Runtime's for processors": """
        Constant BitCast CumProd TensorScatter Adagrad Adam Momentum BiasAdd BiasSoftmax BiasSplitGelu GroupNorm
        SkipGroupNorm NhwcConv FusedMatMulActivation IsAllFinite TreeEnsemble""",
    "of opsets before 7, or the same kernel as another row's": """
        Affine ConstantFill Crop DynamicSlice GivenTensorFill ImageScaler ParametricSoftplus Scale ScaledTanh Scatter
        Upsample SimplifiedLayerNormalization DequantizeLinear QuantizeLinear ExpandDims GatherND GridSample MulInteger
        NhwcFusedConv QLinearConv Range Rfft Irfft ConvTransposeWithDynamicPads CropAndResize
        DecoderMaskedMultiHeadAttention DynamicQuantizeLSTM GatherBlockQuantized QLinearReduceMean""",
    "classical models: bench with the model": """
        FeatureVectorizer LabelEncoder LinearClassifier OneHotEncoder SVMClassifier SVMRegressor TreeEnsembleClassifier
        TreeEnsembleRegressor""",
}
