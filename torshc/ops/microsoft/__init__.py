"""The domain com.microsoft, made of ONNX's own operators at import."""
