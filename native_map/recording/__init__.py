"""Recordings of perf and py-spy: files, records, command lines, clocks."""
