"""The files of a run: its manifest and directory, ranks, clocks, reports of processes."""
