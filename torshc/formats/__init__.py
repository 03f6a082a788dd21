"""Front ends: files of other tools, and our own JSON graph, as graphs. The only users of those tools' libraries."""

from .onnx_format import import_model

__all__ = ["import_model"]
