"""`python -m ipu.serving DIR`: the server of engine.serving, with the steps of models that TensorFlow runs."""

from __future__ import annotations

import sys

from engine.serving.__main__ import main
from ipu._internal.serving.host_steps import with_steps

if __name__ == "__main__":
    sys.exit(main("ipu.serving", with_steps=with_steps))
