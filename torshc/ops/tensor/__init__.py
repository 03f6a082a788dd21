"""Operators that move, find, order or make elements."""
