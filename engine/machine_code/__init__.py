"""Compilation of LLVM IR to machine code in memory: the processor, LLVM's passes, object code on disk, its keys, the
ABI.
"""
