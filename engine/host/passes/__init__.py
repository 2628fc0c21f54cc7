"""Program passes for the host only: the program that the device model estimates is without them."""
