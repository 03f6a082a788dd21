"""Strings, regular expressions, tokens."""
