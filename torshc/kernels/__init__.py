"""Kernels as data: loops, buffers and bodies as expressions, whatever the machine."""
