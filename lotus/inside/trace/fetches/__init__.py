"""The making of a batch: what is timed, drawn and kept of it."""
