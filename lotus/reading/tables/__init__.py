"""The tables of a run, made of its processes' logs."""
