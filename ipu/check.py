"""`python -m ipu.check PROGRAM ...`: lists what works here in a program for IPUs, what to change, and what is
refused.
"""

import sys

from ipu._internal.checking.command import main

if __name__ == "__main__":
    sys.exit(main())
