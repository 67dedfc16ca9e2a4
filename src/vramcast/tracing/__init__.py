"""Memory traces: every allocation and free of a run, simulated or measured, in one format."""
