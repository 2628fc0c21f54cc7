"""`python -m ipu.check PROGRAM ...`: what of a program for IPUs works here, what needs a change, what is refused."""

import sys

from ipu._internal.checking.command import main

if __name__ == "__main__":
    sys.exit(main())
