"""Operators that compute with elements: pointwise functions, reductions, matrix products."""
