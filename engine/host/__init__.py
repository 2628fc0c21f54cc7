"""The host's half of compilation: chooses an algorithm for typed work by its estimated time on this processor."""
