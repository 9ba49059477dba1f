"""A traced program prints, raises, keeps open and computes exactly what it does without lotus."""

import re

import pytest

from tests.integration.records.shapes import IN_ORDER, STARTED, forked


def sections(out):
    """What each shape printed, by its name."""
    parts = re.split(r"^== (\w+)\n", out.decode(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("shape", [*IN_ORDER, *STARTED, "unordered", "kept"])
def test_batches_random_state_files_and_threads(pair, torch, shape):
    """Every bit of every batch, and afterwards random state, descriptors, threads, children."""
    if shape == "unordered" and torch < (2, 6):
        pytest.skip("in_order came with torch 2.6")
    # GIVEN a program that iterates loaders of many shapes
    plain, traced = pair("shapes.py", *(STARTED if shape in STARTED else forked(torch)))
    # WHEN it ran with and without lotus
    without, with_lotus = sections(plain.out), sections(traced.out)
    # THEN it printed the same
    assert (plain.code, plain.err) == (0, b"")
    assert (traced.code, traced.err) == (0, b"")
    assert len(without[shape].splitlines()) >= 5  # the state's four lines and a batch
    assert with_lotus[shape].splitlines() == without[shape].splitlines()
