"""Where threads were blocked: the place that most looks tell, and the sentence of a cause."""

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.observations.blocked_time import blocked_time
from lotus.analysis.observations.places import BlockedPlace, most_frequent
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan

COLUMNS = ["pid", "operation", "reason", "place", "file_system", "looks"]
WORKER, MAIN = 100, 1


def table(*places: tuple[str, str, int], reason: str = "file") -> pd.DataFrame:
    rows = [(WORKER, "Slow", reason, name, kind, looks) for name, kind, looks in places]
    return pd.DataFrame(rows, columns=COLUMNS)


def found(*places: tuple[str, str, int], looks: int = 100) -> BlockedPlace | None:
    return most_frequent(table(*places), "Slow", "file", looks)


def run_with(
    places: list[tuple[int, str, str, str, str, int]],
    *blocking: tuple[int, str, str, int],
    **plan: Any,
) -> SimpleNamespace:
    run = Plan(**{"operations": {"Slow": 20.0}, "cpu": 0.05, "cores": 8, **plan}).run()
    columns = ["pid", "operation", "reason", "looks"]
    run.blocking = pd.DataFrame(blocking, columns=columns).assign(worker=0)
    run.places = pd.DataFrame(places, columns=COLUMNS)
    return run


def test_the_most_frequent_place_and_its_share_of_all_looks() -> None:
    place = found(("/data/a.bin", "ext4", 60), ("/tmp/", "tmpfs", 20))
    assert place == BlockedPlace("file", "/data/a.bin", "ext4", 0.6)
    assert str(place) == "60% at /data/a.bin (ext4)"


def test_processes_are_taken_together() -> None:
    assert found(("/a/", "xfs", 10), ("/b/", "xfs", 15), ("/a/", "xfs", 10)) == BlockedPlace(
        "file", "/a/", "xfs", 0.2
    )


def test_a_directory_for_each_class_is_not_a_place() -> None:
    classes = [(f"/data/train/{number}/", "ext4", 1) for number in range(90)]
    assert found(*classes, ("/tmp/a", "tmpfs", 5)) == BlockedPlace(
        "file", "/data/train/", "ext4", 0.9
    )


def test_directories_that_were_put_together_count_with_those_that_were_not() -> None:
    place = found(("/data/train/", "ext4", 60), ("/data/train/1/a.jpg", "ext4", 20))
    assert place == BlockedPlace("file", "/data/train/", "ext4", 0.8)


def test_a_directory_with_several_file_systems_has_no_type() -> None:
    assert found(("/data/a/", "ext4", 30), ("/data/b/", "nfs4", 30), ("/data/c/", "xfs", 30)) == (
        BlockedPlace("file", "/data/", "", 0.9)
    )


def test_where_nothing_has_most_the_most_frequent_remains() -> None:
    assert found(("/a/x", "", 3), ("/b/x", "", 4), ("/c/x", "", 3)) == BlockedPlace(
        "file", "/b/x", "", 0.04
    )


@pytest.mark.parametrize("looks", [2, 3])
def test_few_looks_tell_no_place(looks: int) -> None:
    assert (found(("/a/x", "", looks)) is not None) == (looks == 3)
    assert most_frequent(table(("/a/x", "", 9)), "Other", "file", 9) is None
    assert most_frequent(table(("/a/x", "", 9)), "Slow", "storage", 9) is None
    assert most_frequent(pd.DataFrame(), "Slow", "file", 9) is None


def test_a_damaged_record_takes_no_long_time_and_tells_no_more_than_all() -> None:
    place = found(("/" * 4000 + "x", "", 50), ("/a" * 2000, "", 60), looks=10)
    assert place is not None
    assert place.share == 1.0


def test_names_cannot_steer_a_terminal() -> None:
    place = found(("/data/\x1b[31m/", "\x1b", 9), looks=9)
    assert place is not None
    assert "\x1b" not in str(place)


def test_rows_of_the_table_have_the_place_of_their_state() -> None:
    places = [
        (WORKER, "Slow", "file", "/data/", "ext4", 30),
        (WORKER, "Slow", "socket", "10.0.0.1:80", "", 2),
        (MAIN, "(step)", "storage", "/runs/model.pt", "nfs4", 20),
        (MAIN, "Slow", "file", "/of/another/loader", "xfs", 99),
    ]
    looks = [
        (WORKER, "Slow", "file", 40),
        (WORKER, "Slow", "socket", 20),
        (MAIN, "(step)", "storage", 25),
    ]
    run = run_with(places, *looks, step=30.0)
    rows = blocked_time(run, scopes(run)[0])
    shown = {
        (row["operation"], row["reason"]): (row["place"], row["file_system"], row["place_share"])
        for row in rows.to_dict("records")
    }
    assert shown["Slow", "file"] == ("/data/", "ext4", 0.75)
    assert shown["(step)", "storage"] == ("/runs/model.pt", "nfs4", 0.8)
    assert shown["Slow", "socket"][:2] == ("", "")
    assert math.isnan(shown["Slow", "socket"][2])
    assert shown["collate", ""][:2] == ("", "")


def test_a_run_without_places_has_none() -> None:
    run = run_with([], (WORKER, "Slow", "file", 40))
    del run.places
    assert set(blocked_time(run, scopes(run)[0])["place"]) == {""}
    assert verdict(scopes(run)[0]).causes[0].place is None


@pytest.mark.parametrize(
    ("reason", "place", "words"),
    [
        ("file", "/data/", "it waits for files, {part}% at /data/ (ext4)"),
        ("storage", "/data/a", "it waits for storage, {part}% at /data/a (ext4)"),
        ("socket", "10.0.0.1:80", "it waits for the network, {part}% at 10.0.0.1:80"),
    ],
)
@pytest.mark.parametrize("part", [45, 50, 90])
def test_the_reason_of_a_cause_names_a_place_that_holds_most(
    reason: str, place: str, words: str, part: int
) -> None:
    kind = "ext4" if place.startswith("/") else ""
    places = [(WORKER, "Slow", reason, place, kind, part)]
    run = run_with(places, (WORKER, "Slow", reason, 100), (WORKER, "Slow", "computing", 10))
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "operation"
    sentence = f"Of the observations in which {words.format(part=part)}."
    assert first.reason.endswith(sentence) == (part >= 50)
    assert (first.place is not None) == (part >= 50)


def test_the_step_and_the_data_sets_own_code_name_theirs() -> None:
    places = [
        (WORKER, "", "file", "/data/", "ext4", 90),
        (MAIN, "(step)", "file", "/runs/model.pt", "nfs4", 90),
    ]
    looks = [(WORKER, "", "file", 100), (MAIN, "(step)", "file", 100)]
    run = run_with(places, *looks, operations={}, own=20.0, step=30.0)
    causes = {cause.kind: cause.place for cause in verdict(scopes(run)[0]).causes}
    assert causes["dataset"] == BlockedPlace("file", "/data/", "ext4", 0.9)
    assert causes["consumer"] == BlockedPlace("file", "/runs/model.pt", "nfs4", 0.9)


def test_cold_files_are_named() -> None:
    places = [(WORKER, "Slow", "storage", "/data/", "nfs4", 60)]
    looks = [(WORKER, "Slow", "storage", 70), (WORKER, "Slow", "page-fault", 20)]
    run = run_with(places, *looks, read_bytes=1 << 20)
    (cold,) = [cause for cause in verdict(scopes(run)[0]).causes if cause.kind == "cold-files"]
    assert cold.place == BlockedPlace("storage", "/data/", "nfs4", 60 / 70)
    assert cold.reason.endswith("it waits for storage, 86% at /data/ (nfs4).")
