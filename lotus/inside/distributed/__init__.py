"""Data-parallel jobs: agreement of ranks, shares, averaging, clocks."""
