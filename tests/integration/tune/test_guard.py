"""What the guard predicts against what a real DataLoader holds."""

import json
import subprocess

import pytest

from lotus.settings.space import Setting
from lotus.tune.search.limits import memory_guard
from lotus.tune.search.limits.resource_costs import ResourceCosts
from tests.integration.conftest import command_of, environment

SHAPES = [
    # workers, prefetch, tensors in a sample, samples in a batch, floats in a tensor
    (1, 1, 1, 4, 20_000),
    (1, 8, 2, 4, 20_000),
    (2, 2, 3, 2, 50_000),
    (3, 4, 1, 8, 10_000),
    (2, 16, 5, 2, 10),  # less than a page each
]


@pytest.fixture(scope="module")
def held_by_shape(torch):
    """What `programs/held.py` saw of each shape."""
    ended = subprocess.run(
        command_of("held.py", [json.dumps(SHAPES)]),
        env=environment({"OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(zip(SHAPES, json.loads(ended.stdout), strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_a_loader_holds_what_was_predicted(held_by_shape, shape) -> None:
    workers, prefetch, tensors, size, floats = shape
    held = held_by_shape[shape]
    batch = tensors * size * floats * 4
    setting = Setting(workers, prefetch)
    need = memory_guard.predict(setting, ResourceCosts(batch, batch, 400, 1 << 28, tensors=tensors))
    assert need is not None
    # The consumer of this program has one batch, not HELD; files are of whole pages.
    standing = workers * prefetch + 1
    assert held["files"] == standing * tensors
    assert standing * batch <= held["still"] <= held["peak"] <= need.shm_bytes
    page = 4096 * tensors
    assert (
        held["still"] >= need.shm_bytes - (memory_guard.HELD - 1) * (batch + page) - standing * page
    )
    assert need.descriptors is not None
    assert 0 < held["descriptors"] <= need.descriptors
