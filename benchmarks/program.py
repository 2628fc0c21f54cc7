"""A contender whose main program imports the API, as users' do: codelets are compiled beside its import of TensorFlow.

python -m benchmarks.program WORKLOAD WAY [STEPS], as benchmarks.contender.
"""

from __future__ import annotations

import sys

from benchmarks.contender import main

if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))

    from tensorflow.python import ipu  # the source has to say so: the first import is in the time of main

    assert ipu.ipu_strategy
