"""Rows by number: gather, scatter, sums over edges, updates of touched rows."""
