"""The program that MPI starts in place of another: a fork gets its environment and runs the other program.

The program ends as the fork does. The fork has already imported TensorFlow, which would take each process of MPI five
seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), os.environ["PMIX_RANK"]
    (folder / f"{rank}.part").write_text(json.dumps(dict(os.environ)))
    (folder / f"{rank}.part").rename(folder / f"{rank}.begin")
    parent = os.getppid()
    while not (ended := folder / f"{rank}.end").exists():
        if os.getppid() != parent:
            sys.exit("MPI's launcher has ended.")
        time.sleep(0.01)
    status, output = json.loads(ended.read_text())
    print(output, end="", file=sys.stderr)
    sys.exit(status)
