"""Reads a binary ONNX file without copying its weights.

The protobuf library copies every ``raw_data`` twice (into the message, and again at each access). This walk over the
wire format (https://protobuf.dev/programming-guides/encoding/) leaves large raw data where it is in the file's bytes,
and hands a small model without it to the library. The place of each is noted in the tensor's ``doc_string``, which is
dropped everywhere else, so that no model can forge such a note.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .model import COMPLETE, Misfit, truncated

LARGE = 1024  # bytes; smaller tensors stay in the message

# Field numbers of onnx.proto3 that lead to tensors: message -> field -> message.
_PATHS: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 8: "Opset", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 11: "Value", 12: "Value", 13: "Value", 15: "Sparse"},
    "Function": {7: "Node", 9: "Opset", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
    "Value": {2: "Type"},
    "Type": {1: "TensorType"},
    "TensorType": {2: "Shape"},
    "Shape": {1: "Dim"},
    "Dim": {},
    "Opset": {},
    "Entry": {},
}
# Fields that hold names; protobuf hands text that is not UTF-8 through as bytes.
_NAMES: dict[str, tuple[int, ...]] = {
    "Graph": (2,), "Function": (1, 4, 5, 6, 10), "Node": (1, 2, 3, 4, 7), "Attribute": (1, 21), "Tensor": (8,),
    "Value": (1,), "Dim": (2,), "Opset": (1,), "Entry": (1, 2),
}  # fmt: skip
_RAW_DATA, _DOC_STRING = 9, 12
DEPTH = 100  # protobuf's own limit


@dataclass
class Stripped:
    """A model without its large raw data.

    Attributes:
        message: the serialised model.
        chunks: the raw data left out; a tensor's doc_string is the number of its chunk.
    """

    message: bytes
    chunks: list[memoryview] = field(default_factory=list)


def strip(data: memoryview) -> Stripped:
    """Take the large raw data out of a serialised model.

    Raises:
        Misfit: when the bytes are not a protobuf message, or are truncated.
    """
    chunks: list[memoryview] = []
    return Stripped(b"".join(_message(data, "Model", chunks, 0)), chunks)


def _message(data: memoryview, kind: str, chunks: list[memoryview], depth: int) -> list[bytes]:
    if depth > DEPTH:
        raise Misfit("the file nests its messages too deeply")
    out: list[bytes] = []
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise truncated()
            part = data[at : at + size]
            at += size
            inner = _PATHS[kind].get(number)
            if inner is not None:
                pieces = _message(part, inner, chunks, depth + 1)
                out += [_encode(tag), _encode(sum(map(len, pieces))), *pieces]
                continue
            if number in _NAMES.get(kind, ()):
                _require_text(part)
            if kind == "Tensor" and number == _DOC_STRING:
                continue
            if kind == "Tensor" and number == _RAW_DATA and size >= LARGE:
                note = str(len(chunks)).encode()
                chunks.append(part)
                out += [_encode(_DOC_STRING << 3 | 2), _encode(len(note)), note]
                continue
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise Misfit("the file is not an ONNX model", COMPLETE)
        if at > len(data) or number == 0:
            raise truncated()
        out.append(bytes(data[start:at]))
    return out


def _require_text(name: memoryview) -> None:
    try:
        str(name, "utf-8")
    except UnicodeDecodeError as e:
        raise Misfit(f"the name {bytes(name)[:40]!r} is not UTF-8 text") from e


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise truncated()


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
