"""From LLVM IR to machine code in memory: the processor, LLVM's passes, object code on disk and its keys, the ABI."""
