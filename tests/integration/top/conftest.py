"""A program that is looked at, gone after its test."""

import functools

import pytest

from tests.integration.top.watched import Started


@pytest.fixture
def start(tmp_path):
    """start(workers, bad, how, pace, most, env=SMALL_TORCH): the program of watched.py traced into
    R. It is torch's own loader that is looked at where env is {}.
    """
    started = Started()
    yield functools.partial(started, tmp_path)
    started.end()
