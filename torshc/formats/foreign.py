"""Files of other formats: what each is, told by its first bytes, and what turns it into ONNX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ..base.errors import ModelError

_HUGGING = "export the model itself: optimum-cli export onnx --model NAME FOLDER (pip install optimum-onnx)"
_TORCH = "load it in PyTorch, then torch.onnx.export(model, args, 'model.onnx', dynamo=True)"
_TENSORFLOW = "pip install tf2onnx, then python -m tf2onnx.convert --saved-model {} --output model.onnx"
_KERAS = "load it in Keras, then model.export('model.onnx', format='onnx')"
_TREES = "pip install onnxmltools, then onnxmltools.convert.{}(model, initial_types=...)"
_PICKLE = (
    "torshc opens no pickles: load it where it was made, then torch.onnx.export (PyTorch) or "
    "skl2onnx.to_onnx (scikit-learn)"
)
_PROGRAM = rb"/data/(weights|constants)/|/models/|/archive_format$|^serialized_exported"  # of torch.export.save

# What a file is, what it is called, and what to do instead; the first that fits counts.
_KNOWN: tuple[tuple[Callable[[bytes], object], str, str], ...] = (
    (lambda head: head.startswith(b"GGUF"), "a GGUF file, weights for llama.cpp", _HUGGING),
    (lambda head: head[8:10] == b'{"' and head[4:8] == bytes(4), "a safetensors file, weights without a graph",
     _HUGGING),
    (lambda head: head[4:8] == b"TFL3", "a TensorFlow Lite model",
     "pip install tf2onnx, then python -m tf2onnx.convert --tflite FILE --output model.onnx"),
    (lambda head: head[4:8] == b"ORTM", "a model in ONNX Runtime's own format", "give the .onnx file it was made from"),
    (lambda head: _first_entry(head).endswith(b".pkl"), "a PyTorch checkpoint", _TORCH),
    (lambda head: re.search(rb"^[^/]+/data/\d+$", _first_entry(head)), "a PyTorch checkpoint or TorchScript program",
     _TORCH),
    (lambda head: re.search(_PROGRAM, _first_entry(head)), "an exported program of PyTorch (.pt2)",
     "torch.onnx.export(torch.export.load(FILE), f='model.onnx'), or torshc.compile(torch.export.load(FILE))"),
    (lambda head: _first_entry(head).endswith(b".json"), "a Keras model", _KERAS),
    (lambda head: head.startswith(b"PK\x03\x04"), "a zip archive", "unpack it first"),
    (lambda head: head.startswith(b"\x89HDF\r\n"), "an HDF5 file, as Keras writes", _KERAS),
    (lambda head: re.match(rb"\x80[\x02-\x05]", head), "a Python pickle", _PICKLE),
    (lambda head: head.startswith(b"ML\xefR") or re.match(rb"\s*(//[^\n]*\n\s*)*(module|func\.func|#loc)\b", head),
     "a module of MLIR", "export ONNX from the framework that wrote it"),
    (lambda head: re.match(rb"\s*<(\?xml|net )", head), "XML, as OpenVINO and PMML write",
     "export ONNX from the framework that it was made with"),
    (lambda head: head.startswith(b"CBM1"), "a CatBoost model", "model.save_model('model.onnx', format='onnx')"),
    (lambda head: head.startswith(b"tree\nversion="), "a LightGBM model", _TREES.format("convert_lightgbm")),
    (lambda head: re.match(rb'\s*\{"learner"', head), "an XGBoost model", _TREES.format("convert_xgboost")),
    (lambda head: head.startswith((b"\x1f\x8b", b"7z\xbc\xaf", b"\xfd7zXZ", b"BZh")), "a compressed file",
     "unpack it first"),
)  # fmt: skip


def refuse_foreign(data: memoryview, path: Path | None) -> None:
    """Say what a file is that is no model of ours.

    Raises:
        ModelError: it is of a format that another program turns into ONNX; the remedy names that program.
    """
    head = bytes(data[:4096])
    named = f"{path}: " if path is not None else ""
    for fits, what, remedy in _KNOWN:
        if fits(head):
            raise ModelError(f"{named}this is {what}, not an ONNX model", remedy)
    if path is not None and path.name == "saved_model.pb":
        raise ModelError(f"{named}this is a TensorFlow model, not an ONNX model", _TENSORFLOW.format(path.parent))


def refuse_folder(path: Path) -> None:
    """Say what a folder is in place of a model's file.

    Raises:
        ModelError: it is a folder.
    """
    if not path.is_dir():
        return
    if (path / "manifest.json").is_file() and (path / "model.h").is_file():
        raise ModelError(f"{path} is a bundle, which is compiled already", "name the model that it was made from")
    if (path / "saved_model.pb").is_file():
        raise ModelError(f"{path}: this is a TensorFlow model, not an ONNX model", _TENSORFLOW.format(path))
    found = sorted(file.name for file in path.glob("*.onnx"))
    remedy = f"name a file in it: {', '.join(found[:4])}" if found else "it holds no .onnx file; name a model's file"
    raise ModelError(f"{path} is a folder, not a model", remedy)


def _first_entry(head: bytes) -> bytes:
    """The name of a zip archive's first file; empty where the file is none."""
    return b"" if not head.startswith(b"PK\x03\x04") else head[30 : 30 + int.from_bytes(head[26:28], "little")]
