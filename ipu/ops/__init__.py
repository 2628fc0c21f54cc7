"""Operations for use in functions that run on the IPU, a module for each documented module."""
