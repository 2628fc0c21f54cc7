"""Passes over programs, before the account: named functions from a program to a better one that computes the same."""
