"""What the documented names are made of; its names change between releases."""
