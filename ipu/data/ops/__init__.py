"""Data set wrappers, a module for each documented module."""
