"""The codelets of each kind of a program's work, and their parameter blocks; one file for a family."""
