"""ONNX's experimental operators, which its first releases had and WinML's models still have."""
