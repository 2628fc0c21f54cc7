"""Passes over programs, before the cost report: named functions from a program to an equivalent, better one."""
