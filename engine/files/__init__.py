"""Compiled programs as files: their contents, writing and reading. See docs/executable_format.md."""
