"""Hostile bytes: a Profile or a Mapping that holds what its docstring says, or one line."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.paper.attribution import apply
from native_map.paper.importers import Profile, load, loads
from native_map.paper.paper_mapping import Mapping, build, from_json, rows_of, to_json
from tests.unit.native_map.paper.test_importers import HOTSPOTS, PROFILES, UARCH, UPROF

FORMS = [HOTSPOTS, UARCH, UPROF, *(path.read_text() for path in sorted(PROFILES.iterdir()))]
CHECKED = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))

CELLS = st.one_of(
    st.sampled_from(
        [
            "",
            "1,234,567",
            "1.234.567",
            "41.5%",
            "41,5%",
            "-3",
            "1e308",
            "9" * 30,
            "nan",
            "inf",
            "0",
            "[Unknown]",
            "f<int, float>",
            '"',
            "\x1b[2J",
            "\ud7ff\u2028",
            "1868.632s",
            "3.4 GHz",
            "12 parsec",
        ]
    ),
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=20),
)


def held(profile: Profile) -> None:
    """What the docstring of Profile promises."""
    frame = profile.functions
    assert len(frame) > 0
    assert not frame.duplicated(["module", "function"]).any()
    for name in ("module", "function"):
        assert all(isinstance(value, str) for value in frame[name])
        assert not frame[name].str.contains(r"[\x00-\x1f\x7f]", regex=True).any()
    metrics = [*profile.additive, *profile.means]
    assert sorted(frame.columns) == sorted(["module", "function", *metrics])
    values = frame[metrics].to_numpy()
    assert values.dtype == np.float64
    assert not (frame[list(profile.additive)] < 0).any(axis=None)
    assert profile.totals.keys() == set(profile.additive)
    assert profile.kind in ("vtune-hotspots", "vtune-uarch", "uprof", "perf-report")
    for note in profile.notes:
        assert "\n" not in note


def check_message(error: UnusableError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1000


def tried(text: str) -> Profile | None:
    try:
        profile = loads(text)
    except UnusableError as error:
        check_message(error)
        return None
    held(profile)
    return profile


def mapped(profile: Profile) -> None:
    """A mapping of these rows, and these rows under it, with nothing lost."""
    try:
        mapping = build(rows_of(profile, "Operation", 1), minimum_runs=1)
    except UnusableError as error:
        check_message(error)
        return
    back = from_json(to_json(mapping))
    pd.testing.assert_frame_equal(back.functions, mapping.functions)
    _, pairs, left = apply(back, profile)
    for name in profile.additive:
        total = pairs[name].sum() + left[name].sum()
        if math.isfinite(profile.totals[name]):
            assert math.isclose(total, profile.totals[name], rel_tol=1e-6, abs_tol=1e-6)


@CHECKED
@given(st.binary(max_size=400))
def test_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "profile"
    path.write_bytes(data)
    try:
        held(load(path))
    except UnusableError as error:
        check_message(error)


@CHECKED
@given(st.sampled_from(FORMS), st.data())
def test_torn_and_edited_exports(form, data):
    edits = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(form)), st.integers(0, 40), st.one_of(CELLS, st.text(max_size=5))
            ),
            max_size=6,
        )
    )
    text = form
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(text))))
    profile = tried(text[:cut])
    if profile is not None:
        mapped(profile)


@CHECKED
@given(
    st.sampled_from(",;\t|"),
    st.lists(
        st.sampled_from(
            [
                "CPU Time",
                "Clockticks",
                "Retiring",
                "Front-End Bound",
                "Bad Speculation",
                "Module",
                "CPU Time:Spin Time",
                "Retiring(%)",
                "CPI Rate",
                "Function!",
                "Weight",
                "Row",
                "Runs",
                "IPC",
                "CPU Time 2",
                "CPU_ns",
                "Samples",
                "L1 Bound",
                "",
                "CPU Time",
            ]
        ),
        max_size=8,
    ),
    st.lists(st.lists(CELLS, min_size=1, max_size=10), max_size=8),
)
def test_tables_of_strange_cells(delimiter, titles, rows):
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    width = len(titles) + 2
    lines = [delimiter.join(["Function", "CPU Time", *titles])]
    lines += [delimiter.join(map(quoted, (row * width)[:width])) for row in rows]
    profile = tried("\n".join(lines) + "\n")
    if profile is not None:
        mapped(profile)


def small() -> Mapping:
    return build(rows_of(loads(HOTSPOTS), "Operation", 1), minimum_runs=1, facts={"a": "b"})


def survives(data: str | bytes) -> None:
    """UnusableError, or a mapping that can be written and applied."""
    try:
        mapping = from_json(data)
    except UnusableError as error:
        check_message(error)
        return
    assert from_json(to_json(mapping)).minimum_runs == mapping.minimum_runs
    apply(mapping, loads(UARCH))


@CHECKED
@given(st.binary(max_size=300))
def test_any_bytes_as_a_mapping(data):
    survives(data)


@CHECKED
@given(st.data())
def test_edited_mappings(data):
    text = to_json(small())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        removed = data.draw(st.integers(0, 10))
        text = text[:at] + data.draw(st.one_of(CELLS, st.just("}"))) + text[at + removed :]
    survives(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@CHECKED
@given(st.data())
def test_mappings_with_other_values(data):
    document = json.loads(to_json(small()))
    place = data.draw(
        st.sampled_from([document, document["functions"][0], document["operations"][0]])
    )
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(VALUES)
    survives(json.dumps(document))


def test_the_forms_are_good_before_they_are_broken():
    good = [tried(form) is not None for form in FORMS]
    assert good.count(False) == 1  # perf's group view
    assert len(FORMS) == 8
    assert Path(PROFILES).is_dir()
