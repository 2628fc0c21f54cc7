"""The ways to do a workload: each module has a `prepare` that does a first step and returns a function for a round."""
