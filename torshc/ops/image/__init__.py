"""Operators that read images between their elements."""
