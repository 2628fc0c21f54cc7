"""The host's half of compilation: chooses an algorithm for each piece of typed work, by estimated time on this
processor.
"""
