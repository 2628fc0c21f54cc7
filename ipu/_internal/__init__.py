"""Implementation of the documented names; its own names change between releases."""
