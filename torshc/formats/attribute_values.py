"""Which values the attributes of operators may have, in one table: all others are refused before a node is read.

ONNX's schemas say of an attribute that it is a text or a number, and only their prose says which ones have a meaning.
A value is checked here even where an operator happens to do something for it, since that would be the meaning of
another value: every flag is 0 or 1. What depends on operands (axes, lengths of lists) is checked by the operators.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from ..base.errors import did_you_mean
from ..ops.microsoft.base import DOMAIN as MICROSOFT
from ..ops.ml.linear import DOMAIN as ML
from .model import Misfit, SourceOp

Values = tuple[int, ...] | tuple[str, ...] | range | None  # None: any; of a list they are the values of an element

DOMAINS = ("", ML, MICROSOFT, "ai.onnx.preview", "ai.onnx.preview.training")

_MOST = 1 << 63
FLAG = (0, 1)
FROM_0, FROM_1 = range(_MOST), range(1, _MOST)
TYPE = range(1, len(TensorProto.DataType.values()))
TYPE_OR_NONE = range(len(TYPE) + 1)
PADDING = ("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
BRANCHES = (*(f"BRANCH_{m}" for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")), "LEAF")
ACTIVATIONS = (
    "", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "ThresholdedRelu", "HardSwish",
    "Softsign", "Gelu", "Clip", "Silu", "SiLU", "Swish",
)  # fmt: skip
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip


def _each(names: str, values: Values) -> dict[str, Values]:
    return dict.fromkeys(names.split(), values)


# By the attribute's name, where all operators mean the same with it.
_BY_NAME: dict[str, Values] = {
    **_each(
        "across_channels align_corners allowzero antialias broadcast causal ceil_mode center_point_box channels_last "
        "count_include_pad detect_negative detect_positive directions do_rotary exclude_outside exclusive fmod "
        "input_forget interleaved inverse is_case_sensitive is_causal is_inner_broadcast is_packed_batching "
        "isinf_only isnan_only keepdims largest layout linear_before_reset mark multi_class new_axis "
        "nodes_falseleafs nodes_missing_value_tracks_true nodes_trueleafs noop_with_empty_axes normalize_variance "
        "normalized one_class onesided output_qk output_sequence past_present_share_buffer periodic reverse "
        "rotary_interleaved saturate scan_input_directions scan_output_directions select_last_index "
        "sliding_window_cache sorted spatial storage_order training_mode "
        "transA transB transBatchA transBatchB unidirectional upper zeros",
        FLAG,
    ),
    **_each("dtype output_datatype softmax_precision stash_type", TYPE),
    **_each("output_dtype precision", TYPE_OR_NONE),
    **_each(
        "batch_dims block_size inputdimensions leaf_targetids max_skip_count n_supports ngram_counts ngram_indexes "
        "num_scan_inputs output_padding rotary_embedding_dim sampling_ratio shape split tree_roots vectors_per_class",
        FROM_0,
    ),
    **_each(
        "K N blocksize dilations group groups hidden_size kernel_shape kv_num_heads max_gram_length max_map "
        "min_gram_length mincharnum n_targets num_groups num_heads num_outputs offset_group opset output_height "
        "output_width pooled_shape q_num_heads qkv_hidden_sizes sample_size size strides targets",
        FROM_1,
    ),
    **_each("left_window_size right_window_size local_window_size", range(-1, _MOST)),
    **_each(  # checked with the operands, or free
        "activation_axis activations axes axis batch_axis cats_int64s cats_strings chunk_size class_ids class_nodeids "
        "class_treeids classes_strings classlabels_int64s classlabels_ints classlabels_strings consumed_inputs "
        "default_int64 default_string delimiter end ends equation gather_axis ignore_index imputed_value_int64s "
        "int64_vocabulary is_test k keys_int64s keys_strings locale maxsplit membership_values nodes_falsenodeids "
        "nodes_featureids nodes_nodeids nodes_treeids nodes_truenodeids output_shape pad_value paddings pads pattern "
        "perm pool_int64s pool_strings quantize_axis replaced_value_int64 scan_input_axes scan_output_axes seed "
        "separators start starts stopwords string_vocabulary target_ids target_nodeids target_treeids time_axis "
        "tokenexp value_int value_ints value_string value_strings values_int64s values_strings xs y zs",
        None,
    ),
    "auto_pad": PADDING,
    "approximate": ("none", "tanh"),
    "case_change_action": ("NONE", "LOWER", "UPPER"),
    "cast_to": ("TO_FLOAT", "TO_STRING", "TO_INT64"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"),
    "map_form": ("DENSE", "SPARSE"),
    "mask_index_type": FLAG,
    "metric": ("euclidean", "sqeuclidean"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "nodes_modes": BRANCHES,
    "norm": ("MAX", "L1", "L2"),
    "padding_mode": ("zeros", "border", "reflection"),
    "pixel_format": ("RGB", "BGR", "Grayscale"),
    "post_transform": TRANSFORMS,
    "qk_matmul_output_mode": range(4),
    "round_mode": ("up", "down", "nearest"),
    "signal_ndim": range(1, 4),
    "update_rule": ("linear", "gated", "delta", "gated_delta"),
}

# By operator and attribute; with a version, as that definition of the operator has it.
_BY_OPERATOR: dict[tuple[str, str] | tuple[str, str, int], Values] = {
    **{(op, "activation"): ACTIVATIONS for op in ("FusedConv", "FusedGemm", "FusedMatMulActivation")},
    **{(op, "activation"): ACTIVATIONS for op in ("NhwcConv", "NhwcFusedConv")},
    **{(op, "activation"): FLAG for op in ("GroupNorm", "SkipGroupNorm")},
    ("CausalConvWithState", "activation"): ("none", "silu", "swish"),
    ("TreeEnsemble", "aggregate_function"): range(len(AGGREGATES)),
    ("TreeEnsemble", "nodes_modes"): range(len(BRANCHES)),
    ("TreeEnsemble", "post_transform"): range(len(TRANSFORMS)),
    ("TreeEnsembleRegressor", "aggregate_function"): AGGREGATES,
    ("Resize", "coordinate_transformation_mode"): COORDINATES,
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    **{(op, "direction"): ("forward", "reverse", "bidirectional") for op in ("RNN", "GRU", "LSTM")},
    ("DynamicQuantizeLSTM", "direction"): ("forward", "reverse", "bidirectional"),
    ("BitCast", "to"): TYPE,
    ("Cast", "to"): TYPE,
    ("Cast", "to", 1): None,  # a name, of which the translation of older opsets has a table
    ("CropAndResize", "mode"): ("bilinear", "nearest"),
    **{(op, "mode"): ("DCR", "CRD") for op in ("DepthToSpace", "SpaceToDepth")},
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("Momentum", "mode"): ("standard", "nesterov"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Upsample", "mode"): ("nearest", "linear"),
    ("Upsample", "mode", 1): ("nearest", "bilinear"),
    **{(op, "p"): FROM_1 for op in ("GlobalLpPool", "LpPool")},
    ("LpNormalization", "p"): (1, 2),
    **{(op, "reduction"): ("none", "sum", "mean") for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    **{(op, "reduction"): ("none", "add", "mul", "max", "min") for op in ("ScatterElements", "ScatterND")},
    ("Reshape", "shape"): None,  # -1 is what is left
    ("RotaryEmbedding", "num_heads"): FROM_0,  # 0 is what the tables of angles say
    ("GatherBlockQuantized", "bits"): (2, 4, 8),
    ("MatMulNBits", "accuracy_level"): range(5),
    ("MatMulNBits", "bits"): (2, 4, 8),
    ("MatMulNBits", "weight_prepacked"): range(3),
    **{("GroupQueryAttention", f"{x}_quant_type"): ("NONE", "PER_TENSOR", "PER_CHANNEL") for x in "kv"},
    ("GroupQueryAttention", "kv_cache_bit_width"): (0, 4, 8),
    ("GroupQueryAttention", "qk_output"): range(3),
    ("GroupQueryAttention", "smooth_softmax"): range(-1, 2),
}


def values_of(op_type: str, name: str, version: int) -> Values:
    """The values of an operator's attribute; None when all have a meaning, or the operator looks for itself.

    Args:
        version: version of the operator's definition.
    """
    for key in ((op_type, name, version), (op_type, name)):
        if key in _BY_OPERATOR:
            return _BY_OPERATOR[key]
    return _BY_NAME.get(name)


def check_values(op: SourceOp, attributes: Mapping[str, Any], version: int) -> None:
    """Check that each attribute of a node has a value with a meaning.

    Args:
        attributes: the attributes, whose kinds fit.
        version: version of the operator's definition.

    Raises:
        Misfit: for a value that the operator does not define.
    """
    if op.domain not in DOMAINS:
        return
    for name, value in attributes.items():
        allowed = values_of(op.op_type, name, version)
        if allowed is None:
            continue
        value = tuple(value.reshape(-1).tolist()) if isinstance(value, np.ndarray) else value
        for e in value if isinstance(value, tuple) else (value,):
            if isinstance(e, (int, str, bytes)) and not _holds(allowed, e):
                hint = did_you_mean(e, [str(v) for v in allowed]) if isinstance(e, str) else ""
                which = "an element of attribute" if isinstance(value, tuple) else "attribute"
                raise Misfit(f"{which} {name!r} is {reprlib.repr(e)}, and must be {_said(allowed)}{hint}")


def _holds(allowed: tuple[int, ...] | tuple[str, ...] | range, value: Any) -> bool:
    if isinstance(allowed, range) and not isinstance(value, int):
        return False  # Python would look through the whole range
    return value in allowed


def _said(allowed: tuple[int, ...] | tuple[str, ...] | range) -> str:
    if isinstance(allowed, range) and allowed.stop == _MOST:
        return f"{allowed.start} or more"
    if isinstance(allowed, range) and len(allowed) > 5:
        return f"{allowed[0]} to {allowed[-1]}"
    *most, last = map(repr, allowed)
    return f"{', '.join(most)} or {last}"
