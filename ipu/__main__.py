"""`python -m ipu`: shows this machine and the compiled code; `cache --clear`; `bench model.py:make`."""

import sys

from ipu._internal.commands.command import main

if __name__ == "__main__":
    sys.exit(main())
