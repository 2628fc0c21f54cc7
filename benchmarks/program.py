"""A contender whose main program imports the API, as users' programs do: codelets compile while TensorFlow is imported.

The arguments are those of benchmarks.contender: python -m benchmarks.program WORKLOAD WAY [STEPS].
"""

from __future__ import annotations

import sys

from benchmarks.contender import main

if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))

    from tensorflow.python import ipu  # the source has to say so: the first import is in the time of main

    assert ipu.ipu_strategy
