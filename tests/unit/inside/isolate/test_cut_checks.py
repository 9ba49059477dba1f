"""Cuts are refused where the data set's own code uses what operations after them are."""

from __future__ import annotations

import pytest

from lotus.inside.cache.random_sources import RandomSources
from lotus.inside.isolate.cut_bench import CutBench, OperationCosts
from lotus.inside.isolate.cut_checks import CutChecks, SamplePath


class Shifted:
    def __init__(self, shift: int) -> None:
        self.shift = shift

    def __call__(self, value: int) -> int:
        return value + self.shift


class Numbers:
    def __init__(self, transform: Shifted, looks: bool) -> None:
        self.transform, self.looks = transform, looks

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return self.transform(index + (self.transform.shift if self.looks else 0))


@pytest.mark.parametrize("looks", [False, True])
def test_a_data_set_that_looks_into_its_transform_has_only_whole_samples(looks: bool) -> None:
    path, sources = SamplePath(Numbers(Shifted(5), looks), 1), RandomSources()
    checks = CutChecks(path, sources)
    checks.check(1)
    sources.put_back()
    whys = [cut.why for cut in checks.cuts]
    refused = "the data set's own code uses attributes of its transform"
    assert whys == [refused if looks else None, None]


def test_what_operations_get_is_reported_without_timing() -> None:
    events: list[dict[str, object]] = []
    bench = CutBench(0, 2, 1, "", lambda event: events.append(dict(event)))
    path = SamplePath(Numbers(Shifted(5), False), 1)
    bench._operations = [OperationCosts() for _ in range(2)]
    bench._note_inputs(path, 3)
    bench._report_operations(path)
    rows = [(event["name"], event["kinds"], event["cpu_ns"]) for event in events]
    assert rows == [("the data set's own code", ["index"], []), ("Shifted", ["int"], [])]
    assert events[1]["qualified_name"] == f"{__name__}.Shifted"
    assert all(event["key"] for event in events)
