"""LLVM for this processor: kernels as LLVM IR."""
