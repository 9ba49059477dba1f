"""In how many threads torch computes."""

import sys


def torch_threads() -> int:
    """In how many threads torch computes in this process; torch was imported."""
    return int(sys.modules["torch"].get_num_threads())
