"""Logs of before, which lack fields that were added within their schema."""

import numpy as np

from lotus.inside.trace.log import log_format
from lotus.reading.logs.frame_scanner import EXPECTED, LATER_FIELDS, dtype_of, frame_types, narrow


def test_a_log_of_before_is_read_and_says_that_they_were_not_measured() -> None:
    description = log_format.description()
    for frame in description:
        fields, later = frame["fields"], LATER_FIELDS.get(str(frame["name"]), ())
        assert isinstance(fields, list)
        frame["fields"] = [field for field in fields if field[0] not in later]
    types = frame_types(description)
    assert types is not None
    old = np.zeros(2, types[log_format.BATCH].fixed)
    old["batch"] = (3, 4)
    rows = narrow(old, EXPECTED["batch"].fixed)
    assert rows["batch"].tolist() == [3, 4]
    assert (rows["run_delay_ns"] == log_format.UNMEASURED).all()
    assert rows["fetch_ns"].tolist() == [0, 0]


def test_a_log_that_lacks_another_field_is_damaged() -> None:
    description = log_format.description()
    for frame in description:
        fields = frame["fields"]
        assert isinstance(fields, list)
        frame["fields"] = [field for field in fields if field[0] != "fetch_ns"]
    assert frame_types(description) is None


def test_each_log_is_read_by_its_own_description_whichever_was_read_before() -> None:
    old, now = log_format.description(), log_format.description()
    for frame in old:
        fields, later = frame["fields"], LATER_FIELDS.get(str(frame["name"]), ())
        assert isinstance(fields, list)
        frame["fields"] = [field for field in fields if field[0] not in later]
    sizes = []
    for description in (now, old, old, now):
        types = frame_types(description)
        assert types is not None
        sizes.append(types[log_format.BATCH].fixed.itemsize)
    assert sizes[0] == sizes[3] > sizes[1] == sizes[2]


def test_they_are_all_times_that_can_be_missing() -> None:
    for name, fields in LATER_FIELDS.items():
        assert {EXPECTED[name].fixed[field] for field in fields} == {dtype_of([("x", "Q")])["x"]}
