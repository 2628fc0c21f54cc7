"""The ways to run a workload: each module has a `prepare` that runs a first step and returns a function for a round."""
