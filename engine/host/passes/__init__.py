"""Program passes for the host only: the device model estimates the program without them."""
