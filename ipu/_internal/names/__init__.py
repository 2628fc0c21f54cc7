"""The names that users see: what modules list, and what those say that do not exist here."""
