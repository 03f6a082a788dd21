"""Files of other formats are named, with what turns them into ONNX."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest

from torshc.base.errors import ModelError
from torshc.formats import load_graph


def archive(entry: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        z.writestr(zipfile.ZipInfo(entry), b"")  # dated 1980: the bytes name a test, which all workers must agree on
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "what", "remedy"),
    [
        ("m.gguf", b"GGUF\x03\0\0\0", "GGUF", "optimum-cli export onnx"),
        ("m.safetensors", (14).to_bytes(8, "little") + b'{"w":{}}      ', "safetensors", "optimum-cli export onnx"),
        ("m.tflite", b"\x1c\0\0\0TFL3", "TensorFlow Lite", "tf2onnx.convert --tflite"),
        ("m.ort", b"\x1c\0\0\0ORTM", "ONNX Runtime's own", ".onnx file"),
        ("m.pt", archive("model/data.pkl"), "PyTorch", "torch.onnx.export"),
        ("m.ts", archive("model/data/0"), "TorchScript", "torch.onnx.export"),
        ("m.pt2", archive("model/data/weights/weight_0"), ".pt2", "torch.export.load"),
        ("old.pt2", archive("serialized_exported_program.json"), ".pt2", "torch.export.load"),
        ("m.zip", archive("model.onnx"), "zip", "unpack"),
        ("m.keras", archive("metadata.json"), "Keras", "format='onnx'"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "HDF5", "format='onnx'"),
        ("m.pkl", pickle.dumps({"a": 1}), "pickle", "skl2onnx.to_onnx"),
        ("m.mlir", b"// made\nmodule @m {\n}", "MLIR", "export ONNX"),
        ("m.xml", b'<?xml version="1.0"?><net name="m"/>', "OpenVINO", "export ONNX"),
        ("m.cbm", b"CBM1\0\0", "CatBoost", "format='onnx'"),
        ("m.txt", b"tree\nversion=v4\n", "LightGBM", "convert_lightgbm"),
        ("m.json", b'{"learner": {}}', "XGBoost", "convert_xgboost"),
        ("m.onnx.gz", b"\x1f\x8b\x08\0", "compressed", "unpack"),
        ("saved_model.pb", b"\x08\x01\x12\x00", "TensorFlow", "tf2onnx.convert --saved-model"),
    ],
)
def test_files_of_other_formats(name: str, data: bytes, what: str, remedy: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load_graph(file)
    assert caught.value.message.startswith(f"{file}: this is") and what in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("data", [b"/" * 4096, b"// a\n" * 800, b"//" + b" " * 4094])
def test_comments_take_no_time(data: bytes) -> None:
    """Comments before a module can be read in one way only, so that none is tried again and again."""
    with pytest.raises(ModelError):
        load_graph(data)


@pytest.mark.parametrize(
    ("files", "what", "remedy"),
    [
        (["manifest.json", "model.h"], "is a bundle", "made from"),
        (["saved_model.pb"], "TensorFlow", "--saved-model"),
        (["model.onnx"], "is a folder", "model.onnx"),
        (["manifest.json"], "is a folder", "no .onnx file"),
    ],
)
def test_folders_are_no_models(files: list[str], what: str, remedy: str, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        load_graph(tmp_path)
    assert str(tmp_path) in caught.value.message and what in caught.value.message
    assert remedy in caught.value.remedy


def test_models_are_called_by_their_files(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]>\nmain_graph (float[2] x) => (float[2] y) { y = Relu(x) }'
    (tmp_path / "mine.onnx").write_text(text)
    assert load_graph(tmp_path / "mine.onnx").name == "mine"
    assert load_graph(text.encode()).name == "main_graph"
