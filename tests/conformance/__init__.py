"""ONNX's own test cases through the whole path: compile, load, run, compare."""
