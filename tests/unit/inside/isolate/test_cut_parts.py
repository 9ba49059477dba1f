"""What the cuts of a pipeline are measured with: generators, times blocked, files that are read."""

import os
import random
import select

import numpy as np
import pytest

from lotus.inside.cache import random_sources
from lotus.inside.cache.entry_codec import HOLE
from lotus.inside.cache.random_sources import RandomSources
from lotus.inside.cache.sample_template import filled, with_hole
from lotus.inside.isolate import busy_time
from lotus.inside.isolate.busy_time import BusyTime, reading
from lotus.inside.isolate.cut_bench import words
from lotus.inside.isolate.file_reads import FileReads


def test_generators_get_their_own_states_back():
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    sources = RandomSources()
    begun = sources.seed(1)
    assert random_sources.drawn(begun) == set()
    first = random.random(), np.random.random()
    assert random_sources.drawn(begun) == {"python", "numpy"}
    sources.seed(2)
    assert random.random() != first[0]
    sources.seed(1)
    assert (random.random(), np.random.random()) == first
    sources.put_back()
    assert (random.random(), np.random.random()) == expected


def test_the_generator_of_torch_is_one_of_them():
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    sources = RandomSources()
    begun = sources.seed(1)
    torch.rand(1)
    assert random_sources.drawn(begun) == {"torch"}
    sources.put_back()
    assert torch.equal(torch.rand(3), expected)


def test_a_thread_that_waits_is_blocked_and_one_that_computes_is_not():
    if not os.path.exists("/proc/thread-self/schedstat"):
        pytest.skip("the kernel does not count run-queue delay")
    busy = BusyTime()

    def blocked_share(work):
        """Of the time in which it is on a core or blocked, which leaves out that for a core."""
        busy.start()
        work()
        ((cpu_ns, blocked_ns),) = busy.stop([reading()])
        return blocked_ns / (cpu_ns + blocked_ns)

    # Several of each: a thread that loses its core between two readings shows nothing.
    computed = [blocked_share(lambda: sum(range(1_000_000))) for _ in range(5)]
    waited = [blocked_share(lambda: select.select((), (), (), 0.05)) for _ in range(5)]
    busy.close()
    assert min(computed) < 0.5 < max(waited)


def test_blocked_time_is_that_of_the_earlier_readings_as_far_as_it_can_be(monkeypatch):
    delays_ns, now = iter((5, 55)), iter([(0, 0)])
    monkeypatch.setattr(BusyTime, "_read_delay_ns", lambda self: next(delays_ns))
    monkeypatch.setattr(busy_time, "reading", lambda: next(now))
    busy = BusyTime()
    busy.start()
    # 300 ns, of them 20 on a core and 50 ready for one
    assert busy.stop([(10, 100), (20, 300)]) == [(10, 90), (20, 230)]
    busy.close()


@pytest.mark.parametrize("make", [list, tuple, lambda parts: dict(enumerate(parts))])
def test_a_template_has_a_hole_where_the_result_stands(make):
    result = [1, 2]
    sample = make([result, "label", make([5])])
    template, holes = with_hole(sample, result)
    assert holes == 1
    assert template == make([HOLE, "label", make([5])])
    assert filled(template, result) == sample
    assert filled(template, result) is not sample
    # An equal object that is another one is no result.
    assert with_hole(make([[1, 2]]), result)[1] == 0
    assert with_hole(make([result, result]), result)[1] == 2
    assert with_hole(result, result) == (HOLE, 1)


class Listed:
    def __init__(self, paths):
        self.paths = paths


def test_files_that_are_opened_or_listed_are_known_and_others_are_seen(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(100_000))
    descriptor = os.open(path, os.O_RDONLY)

    def opened():
        path.read_bytes()

    def held():  # as a library in C reads it
        os.pread(descriptor, 100_000, 0)

    def nothing():
        pass

    def watched(dataset, read):
        reads = FileReads()
        for index in range(2):
            reads.start()
            read()
            reads.stop(dataset, index, times=1)
        return reads.known, reads.unseen

    assert watched(object(), opened) == (True, False)
    assert watched(object(), held) == (False, True)
    assert watched(Listed([str(path)] * 2), held) == (True, False)
    assert watched(object(), nothing) == (False, False)
    os.close(descriptor)


def test_values_are_described():
    assert words(np.zeros((3, 4), np.uint8)) == "ndarray uint8 3x4"
    assert words(np.float32(1)) == "float32 float32 scalar"
    assert words({"a": 1}) == "dict"
