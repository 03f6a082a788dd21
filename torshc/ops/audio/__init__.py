"""Fourier transforms and audio front ends."""
