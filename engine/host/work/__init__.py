"""Work that the host puts in place of a program's, for algorithms of its own."""
