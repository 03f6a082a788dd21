"""Speed of operators beside ONNX Runtime's, on this processor."""
