"""Processors: C for clang and gcc."""
