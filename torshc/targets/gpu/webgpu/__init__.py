"""WebGPU: kernels as WGSL, for a native library and for a browser."""
