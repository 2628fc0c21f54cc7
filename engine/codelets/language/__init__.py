"""The language of codelets: a part of Python, its translation to LLVM IR, and the intrinsics that codelets call."""
