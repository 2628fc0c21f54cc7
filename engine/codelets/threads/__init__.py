"""Worker threads and their waits, and sums over the processes of a machine."""
