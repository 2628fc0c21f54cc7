"""Compilation of LLVM IR to machine code in memory: processor, LLVM's passes, object code and its keys, ABI."""
