"""The deprecated arguments of queues, with their replacements (Python API, 18.4 and 18.5)."""

from __future__ import annotations

NO_CHANGE = "no change needed,"
INFEED = {
    "replication_factor": f"{NO_CHANGE} it is set automatically based on the model. It has no effect.",
    "data_to_prefetch": "use prefetch_depth instead. It has no effect.",
    "feed_name": f"{NO_CHANGE} a name is generated automatically.",
}
OUTFEED = {
    "replication_factor": INFEED["replication_factor"],
    "io_batch_size": "accumulate the results in the program, or use accumulate_outfeed when pipelining. It has no "
    "effect.",
    "feed_name": INFEED["feed_name"],
}
