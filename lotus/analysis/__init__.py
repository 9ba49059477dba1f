"""Pure analysis: DataFrames of a `Run` in, DataFrames and dataclasses out; no I/O, no state."""
