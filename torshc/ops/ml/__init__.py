"""The domain ai.onnx.ml: tree ensembles, linear models, support vector machines, tables."""
