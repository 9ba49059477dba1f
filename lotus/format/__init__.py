"""What the files of a run mean: its manifest, its directory, ranks, clocks, reports of
processes.
"""
