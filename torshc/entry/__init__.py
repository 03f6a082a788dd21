"""Ways into the compiler from Python: traced functions, PyTorch, and models that run in the process."""
