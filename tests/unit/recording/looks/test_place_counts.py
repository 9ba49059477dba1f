"""Counts of places, whose number is bounded however many files there are."""

from lotus.recording.looks.place_counts import MOST, PlaceCounts


def test_the_only_file_of_a_directory_keeps_its_name() -> None:
    counts = PlaceCounts()
    for pid in (7, 8):
        counts.add(pid, 1, "file", "/data/a.bin")
    assert [place for _, place, _ in counts.rows()] == ["/data/a.bin"] * 2
    counts.add(7, 1, "file", "/data/b.bin")
    counts.add(7, 1, "file", "/data/a.bin")
    assert [(where[0], place, looks) for where, place, looks in counts.rows()] == [
        (7, "/data/", 3),
        (8, "/data/", 1),
    ]


def test_a_directory_that_is_read_itself_has_no_file() -> None:
    counts = PlaceCounts()
    counts.add(7, 1, "file", "/data/")
    counts.add(7, 1, "file", "/data/a")
    assert [(place, looks) for _, place, looks in counts.rows()] == [("/data/", 2)]


def test_peers_and_reasons_are_counted_apart() -> None:
    counts = PlaceCounts()
    for reason, place in (("socket", "[::1]:80"), ("file", "/a"), ("storage", "/a")):
        counts.add(7, 1, reason, place)
    assert sorted((where[2], place) for where, place, _ in counts.rows()) == [
        ("file", "/a"),
        ("socket", "[::1]:80"),
        ("storage", "/a"),
    ]


def test_a_million_files_take_one_count() -> None:
    counts = PlaceCounts()
    for number in range(10_000):
        counts.add(7, 1, "file", f"/data/{number}.jpg")
    assert counts.rows() == [((7, 1, "file", "/data/"), "/data/", 10_000)]


def test_directories_of_many_classes_become_the_one_that_they_are_in() -> None:
    counts = PlaceCounts()
    for number in range(5000):
        counts.add(7, 1, "file", f"/data/train/{number}/a.jpg")
        counts.add(7, 1, "file", "/data/index.bin")
    rows = {place: looks for _, place, looks in counts.rows()}
    assert len(rows) <= MOST
    assert rows["/data/index.bin"] == 5000  # what is frequent remains
    assert rows["/data/train/"] > 3000
    assert sum(rows.values()) == 10_000
    assert not counts.elsewhere


def test_what_does_not_fit_is_counted() -> None:
    counts = PlaceCounts()
    for number in range(5000):
        counts.add(7, 1, "socket", f"10.0.{number // 250}.{number % 250}:80")
        counts.add(7, 1, "socket", "10.1.0.1:80")
    rows = counts.rows()
    assert len(rows) <= MOST
    assert rows[0][1:] == ("10.1.0.1:80", 5000)
    assert counts.elsewhere > 0
    assert sum(looks for *_, looks in rows) + counts.elsewhere == 10_000
