"""Quantised tensors and products of integers."""
