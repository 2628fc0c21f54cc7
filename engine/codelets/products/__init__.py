"""Products: blocked contractions in each element type, their micro kernels and the packing of operands."""
