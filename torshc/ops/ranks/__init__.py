"""Operators that exchange tensors between the ranks that share a model."""
