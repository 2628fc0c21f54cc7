"""The public names: those that modules list, and the messages for names that do not exist here."""
