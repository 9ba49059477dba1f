"""The choice of a cut, from events whose best answer is known; how it is printed and written."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lotus.advise.caches import cache_plan, cache_room, planned_cache
from lotus.advise.caches.cache_plan import DISK, RAM, CachePlace, CachePlanning
from lotus.common.errors import LotusError
from lotus.reporters.advise import plan_report
from lotus.reporters.base.console import plain_console
from lotus.settings import tuned_file

MS, MB = 1_000_000, 1_000_000
GB = 1000 * MB


def data_set(**changes: Any) -> dict[str, Any]:
    fields = {
        "event": "data_set", "path": ["dataset", "transform"], "operations": ["Resize", "Flip"],
        "length": 1000, "batch_size": 8, "num_workers": 2, "refused": None, "files": True,
        "unseen_files": False, "samples": 4, "accesses": None, "not_followed": None,
        "collate_ns": None,
        "torch": "2.14.1", "rss_bytes": 5 * MB,
        "loader": {
            "number": None, "call_site": "train.py:3", "dataset": "Subset",
            "dataset_length": 1000, "sampler": "RandomSampler",
        },
        "setting": {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False,
                    "persistent_workers": True},
    }  # fmt: skip
    return {**fields, **changes}


def cut(
    number: int,
    name: str,
    before: list[float],
    after: float = 1.0,
    size: float | list[float] = 1.0,
    keep: float = 0.5,
    fetch: float = 0.1,
    why: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Times in ms, sizes in MB."""
    count = len(before)
    sizes = [size] * count if isinstance(size, float) else size
    kept = count if why is None else 0
    fields = {
        "event": "cut", "cut": number, "name": name, "deterministic": why is None,
        "draws": [] if why is None else ["torch"], "why": why, "value": "picture RGB 500x375",
        "before_ns": [ms * MS for ms in before], "before_blocked_ns": [0] * count,
        "after_ns": [after * MS] * count, "after_blocked_ns": [0] * count,
        "bytes": [mb * MB for mb in sizes][:kept],
        "keep_ns": [keep * MS] * kept, "fetch_ns": [fetch * MS] * kept, "compressions": [],
        "key": None,
    }  # fmt: skip
    return {**fields, **changes}


def room_for(samples: float, mb: float = 1.0) -> CachePlace:
    """Return a place in memory with room for so many samples of 1,000, each of so many MB."""
    files = samples * float(cache_plan.file_bytes(np.array([mb * MB]))[0])
    return CachePlace(RAM, "/dev/shm/x", round(files + cache_plan.folder_bytes(samples)))


RANDOM = cut(2, "Flip", [5.1] * 4, 0.9, why="random numbers are drawn before it")
MEMORY = CachePlace(RAM, "/dev/shm/lotus-samples-0", 10 * GB)


def chosen_of(
    *cuts: dict[str, Any],
    places: tuple[CachePlace, ...] = (MEMORY,),
    epochs: int = 10,
    **changes: Any,
) -> CachePlanning:
    data, measured = cache_plan.read([data_set(**changes), *cuts])
    return cache_plan.choose(data, measured, places, epochs)


def several() -> CachePlanning:
    """A planning with an offer for two cuts in two places."""
    disk = CachePlace(DISK, None, 500 * MB, 1e9, 5e8)
    return chosen_of(
        cut(0, "the data set's own code", [3.0] * 4, 3.0),
        cut(1, "Resize", [5.0] * 4, 1.0, 0.2),
        RANDOM,
        places=(MEMORY, disk),
    )


def test_the_latest_cut_that_can_be_kept_saves_most() -> None:
    chosen = several().chosen
    assert chosen is not None
    assert (chosen.cut.name, chosen.place, chosen.share) == ("Resize", MEMORY, 1.0)
    # 5 ms before and 1 after become 0.1 and 1; the first epoch adds 0.5.
    assert chosen.now.mean == pytest.approx(6 * MS)
    assert chosen.first.mean == pytest.approx(6.5 * MS)
    assert chosen.later.mean == pytest.approx(1.1 * MS)
    assert chosen.times.mean == pytest.approx(6 / 1.1)
    assert chosen.break_even == 2
    assert chosen.kept_bytes == pytest.approx(200 * MB, rel=0.005)
    assert chosen.least_ns_per_byte == 0.0


def test_an_earlier_cut_that_is_smaller_wins_where_the_budget_binds() -> None:
    # GIVEN room for a fifth of the large values, or for all of the small ones
    cuts = (
        cut(0, "the data set's own code", [4.0] * 4, 2.0, 0.1),
        cut(1, "ToTensor", [5.0] * 4, 1.0, 5.0),
    )
    place = CachePlace(RAM, "/dev/shm/x", 1000 * MB)
    chosen = chosen_of(*cuts, places=(place,)).chosen
    assert chosen is not None
    assert (chosen.cut.number, chosen.share) == (0, 1.0)
    more = chosen_of(*cuts).chosen
    assert more is not None
    assert more.cut.number == 1


def webp(size: float, keep: float, fetch: float, count: int = 2) -> list[dict[str, Any]]:
    return [
        {
            "method": "webp",
            "bytes": [size * MB] * count,
            "keep_ns": [keep * MS] * count,
            "fetch_ns": [fetch * MS] * count,
        }
    ]


def test_samples_are_compressed_where_the_budget_binds_and_reading_is_cheaper() -> None:
    # GIVEN room for a third of 1,000 samples of 1 MB, which compressed take half
    place = room_for(666, 0.5)
    event = cut(0, "own", [8.0] * 4, 0.0, compressions=webp(0.5, 2.0, 1.0))
    chosen = chosen_of(event, places=(place,)).chosen
    assert chosen is not None
    assert (chosen.compression, chosen.share) == ("webp", pytest.approx(0.666))
    assert chosen.first.mean == pytest.approx((8 + 0.666 * 2) * MS)
    assert chosen.later.mean == pytest.approx((8 - 0.666 * 7) * MS)
    assert chosen.kept_bytes == pytest.approx(333 * MB, rel=0.02)
    # WHERE all of them fit, they stay as they are,
    large = chosen_of(event).chosen
    assert large is not None
    assert large.compression is None
    # AND so where reading them would take as long as making them.
    slow = cut(0, "own", [8.0] * 4, 0.0, compressions=webp(0.5, 2.0, 7.9))
    plain = chosen_of(slow, places=(place,)).chosen
    assert plain is not None
    assert plain.compression is None


def test_a_gain_below_a_twentieth_is_no_reason_to_compress() -> None:
    place = room_for(960)
    event = cut(0, "own", [8.0] * 4, 8.0, compressions=webp(0.9, 0.5, 0.1))
    chosen = chosen_of(event, places=(place,)).chosen
    assert chosen is not None
    assert (chosen.compression, chosen.share) == (None, pytest.approx(0.96))


def test_compressed_samples_are_in_the_settings_and_the_output(tmp_path: Path) -> None:
    place = room_for(333)
    event = cut(0, "own", [8.0] * 4, 0.0, compressions=webp(0.5, 2.0, 1.0))
    planning = chosen_of(event, RANDOM, places=(place,))
    tuned = planned_cache.settings(planning, ["train.py"])
    assert tuned is not None
    path = tmp_path / "plan.json"
    tuned_file.write(path, tuned)
    cache = tuned_file.read(path).loaders[0].cache
    assert cache is not None
    assert cache.compression == "webp"
    file = io.StringIO()
    plan_report.write(plain_console(file), planning, words=["train.py"], output=path)
    text = file.getvalue()
    assert ["webp", "488", "KiB", "50%", "2.00", "ms", "1.00", "ms"] in map(
        str.split, text.split("\n")
    )
    assert "all samples take 48" in text  # MiB
    assert "Cache what comes from own, in RAM, compressed (webp)." in text


def test_where_not_all_fit_those_that_save_most_for_their_size_are_kept() -> None:
    before = [1.0, 10.0, 1.0, 10.0]
    place = room_for(500)  # for half of 1,000 samples of 1 MB
    chosen = chosen_of(cut(0, "own", before), places=(place,)).chosen
    assert chosen is not None
    assert chosen.least_ns_per_byte == pytest.approx(10.0)
    assert chosen.share == pytest.approx(0.5)
    # Half of the samples take 0.1 ms in place of 10.
    assert chosen.now.mean - chosen.later.mean == pytest.approx(0.5 * 9.9 * MS)


def test_equal_samples_fill_the_budget_by_chance() -> None:
    place = room_for(250)
    chosen = chosen_of(cut(0, "own", [4.0, 4.1, 3.9, 4.0]), places=(place,)).chosen
    assert chosen is not None
    assert chosen.least_ns_per_byte == 0.0
    assert chosen.share == pytest.approx(0.25)
    assert chosen.kept_bytes == pytest.approx(250 * MB, rel=0.005)


def test_samples_that_cost_more_to_read_than_to_make_are_left_out() -> None:
    event = cut(0, "own", [0.1, 20.0, 0.1, 20.0], fetch=8.0)
    chosen = chosen_of(event).chosen
    assert chosen is not None
    assert chosen.share == pytest.approx(0.5)
    assert chosen.later.mean < chosen.now.mean - 5 * MS


def test_nothing_deterministic_is_not_kept() -> None:
    planning = chosen_of(cut(0, "own", [5.0] * 4, why="it differs when it is made again"))
    assert planning.chosen is None
    assert planning.offers == ()
    assert planning.reason.startswith("Do not cache samples: no cut can be cached")
    assert planning.reason.endswith("it differs when it is made again")


def test_what_saves_little_is_not_kept() -> None:
    planning = chosen_of(cut(0, "own", [0.5] * 4, 10.0))  # 0.4 of 10.5 ms
    assert planning.chosen is None
    assert "would save 3.8% of a sample's time, less than 5%" in planning.reason
    assert chosen_of(cut(0, "own", [0.8] * 4, 10.0)).chosen is not None  # 0.7 of 10.8


def test_epochs_have_to_be_enough() -> None:
    event = cut(0, "own", [2.0] * 4, keep=5.0, fetch=1.0)  # it costs 5, and saves 1 an epoch
    planning = chosen_of(event, epochs=5)
    assert planning.chosen is None
    assert "it would pay from 6 epochs on, and there are 5" in planning.reason
    # In 6 epochs it gives back what it cost; in 8 it saves 2 of 24 ms.
    planning = chosen_of(event, epochs=7)
    assert planning.chosen is None
    assert "in 7 epochs the best cut would save 4.8% of their time" in planning.reason
    assert chosen_of(event, epochs=8).chosen is not None


def test_a_slow_disk_is_not_used_and_a_quick_one_is() -> None:
    event = cut(0, "own", [5.0] * 4)

    def on_disk(**changes: Any) -> CachePlanning:
        fields = {"write_bytes_per_s": 2e9, "read_bytes_per_s": 2e9, **changes}
        return chosen_of(event, places=(CachePlace(DISK, None, 10 * GB, **fields),))

    quick = on_disk().chosen
    assert quick is not None
    assert not quick.warm
    # Two workers share 2 GB/s: 1 MB takes each of them 1 ms.
    assert quick.later.mean == pytest.approx((1.0 + 0.1 + 1.0) * MS)
    assert on_disk(read_bytes_per_s=1e8).chosen is None
    # What is in the page cache is not read from the disk again.
    warm = on_disk(read_bytes_per_s=1e8, page_cache_bytes=2 * GB).chosen
    assert warm is not None
    assert warm.warm
    assert warm.later.mean == pytest.approx(1.1 * MS)


def test_time_blocked_is_saved_too() -> None:
    event = cut(0, "own", [0.1] * 4, before_blocked_ns=[20 * MS] * 4)
    chosen = chosen_of(event).chosen
    assert chosen is not None
    assert chosen.times.mean == pytest.approx(21.1 / 1.1)


AGAIN = {  # half of the samples in an epoch, most of the others in the next ones
    "accesses": [1000, 1000, 1000],
    "distinct": [500, 800, 1000],
    "ranks": [0, 500, 800, 1000],
    "hits": [[0, 500, 500, 500], [0, 700, 700, 700], [0, 500, 800, 800]],
}


def test_epochs_that_ask_for_some_samples_again_hit_what_they_had() -> None:
    planning = chosen_of(cut(0, "own", [5.0] * 4), accesses=AGAIN, epochs=4)
    chosen = planning.chosen
    assert chosen is not None
    assert chosen.hits == pytest.approx((0.5, 0.7, 0.8))
    # 5 ms before and 1 after; 0.5 to write, and 0.1 to read
    assert chosen.first.mean == pytest.approx((6 + 0.5 * 0.5 - 0.5 * 4.9) * MS)
    saved = (0.7 + 0.8 + 0.8) / 3 * 4.9 - (0.3 + 0.2 + 0.2) / 3 * 0.5
    assert chosen.later.mean == pytest.approx((6 - saved) * MS)
    assert chosen.break_even == 1
    words = " ".join(printed(planning).split())
    assert "come 50% of epoch 1, 70% of epoch 2, 80% of epoch 3, 80% of epoch 4;" in words
    # WHERE half of the samples find room, those that came first stay.
    half = room_for(500)
    chosen = chosen_of(cut(0, "own", [5.0] * 4), accesses=AGAIN, epochs=4, places=(half,)).chosen
    assert chosen is not None
    assert chosen.hits == pytest.approx((0.5, 0.7, 0.5))
    assert chosen.share == pytest.approx(0.5)


def test_the_epochs_that_were_drawn_are_told_where_more_are_to_come() -> None:
    said = "3 epochs were drawn, and further ones are taken as the last"
    event = cut(0, "own", [5.0] * 4)
    more = printed(chosen_of(event, accesses=AGAIN, epochs=4))
    assert said in " ".join(more.split())
    assert "were drawn" not in printed(chosen_of(event, accesses=AGAIN, epochs=3))


@pytest.mark.parametrize("reason", ["it is not torch's own", "it draws more than 2,000,000"])
def test_what_is_assumed_of_a_sampler_has_its_reason(reason: str) -> None:
    planning = chosen_of(cut(0, "own", [5.0] * 4), not_followed=reason)
    words = " ".join(printed(planning).split())
    assert f"asks for each sample once; the RandomSampler is not followed: {reason}" in words
    assert plan_report.document(planning)["accesses"]["not_followed"] == reason


def test_a_million_epochs_take_no_more_room_than_those_that_are_known() -> None:
    planning = chosen_of(cut(0, "own", [5.0] * 4), accesses=AGAIN, epochs=1_000_000)
    document = plan_report.document(planning)["chosen"]
    assert document["hit_shares"] == pytest.approx([0.5, 0.7, 0.8])
    # Nearly all epochs are like the last one: 0.8 read, 0.2 written.
    assert document["later_epochs_ns"]["mean"] == pytest.approx(
        (6 - 0.8 * 4.9 + 0.1) * MS, rel=1e-5
    )
    words = " ".join(printed(planning).split())
    assert "70% of epoch 2, 80% of epoch 3, 80% of epoch 1000000;" in words
    once = chosen_of(cut(0, "own", [5.0] * 4), epochs=1_000_000)
    assert plan_report.document(once)["chosen"]["hit_shares"] == [0, 1]


def test_nothing_is_assumed_of_samples_that_cannot_be_cached() -> None:
    assert plan_report.document(chosen_of(refused="it is iterable"))["accesses"] is None


def test_collate_stays() -> None:
    planning = chosen_of(cut(0, "own", [5.0] * 4), collate_ns=2.0 * MS, num_workers=0)
    assert planning.chosen is not None
    # 5 ms before, 1 after and 2 to collate; 0.1 to read
    assert planning.chosen.now.mean == pytest.approx(8 * MS)
    assert planning.chosen.later.mean == pytest.approx(3.1 * MS)


def test_a_part_of_a_data_set_takes_the_bytes_of_that_part() -> None:
    part = {
        "accesses": [200] * 2,
        "distinct": [200] * 2,
        "ranks": [0, 200],
        "hits": [[0, 0], [0, 200]],
    }
    planning = chosen_of(cut(0, "own", [5.0] * 4), accesses=part)
    assert planning.chosen is not None
    assert planning.chosen.whole_bytes == pytest.approx(200 * MB, rel=0.01)
    assert "hits" not in printed(planning)


def test_a_partial_cache_tells_its_hits() -> None:
    place = room_for(250)
    words = " ".join(printed(chosen_of(cut(0, "own", [4.0] * 4), places=(place,))).split())
    assert "hits 25% of an epoch's samples come from the cache, from epoch 2 on" in words
    assert "assumed each epoch" not in words


def test_tiny_values_have_a_finite_density() -> None:
    chosen = chosen_of(cut(0, "own", [5.0] * 4, size=0.0)).chosen
    assert chosen is not None
    assert (chosen.share, math.isfinite(chosen.least_ns_per_byte)) == (1.0, True)


def test_no_room_and_a_refused_data_set() -> None:
    event = cut(0, "own", [5.0] * 4)
    nowhere = chosen_of(event, places=(CachePlace(RAM, "/dev/shm/x", 0),))
    assert nowhere.reason == "Do not cache samples: there is no room for them"
    refused = chosen_of(refused="its data set is iterable", path=None, operations=[], length=None)
    assert refused.reason == "Samples cannot be cached: its data set is iterable"
    assert planned_cache.settings(refused, ["python"]) is None


def test_intervals_hold_the_mean_and_grow_with_the_spread() -> None:
    even = chosen_of(cut(0, "own", [5.0] * 12)).chosen
    uneven = chosen_of(cut(0, "own", [2.0, 8.0] * 6)).chosen
    assert even is not None
    assert uneven is not None
    assert even.now.low == pytest.approx(even.now.high)
    assert uneven.now.low < uneven.now.mean < uneven.now.high
    assert uneven.times.low < uneven.times.mean < uneven.times.high


def test_events_that_end_too_early_are_an_error() -> None:
    with pytest.raises(LookupError, match="ended before its samples were measured"):
        cache_plan.read([{"event": "fault", "error": "x"}])


def test_a_loader_of_other_types_is_an_error() -> None:
    with pytest.raises(ValueError, match="number must be a whole number or null, not a text"):
        cache_plan.read([data_set(loader={"number": "x"})])


def test_the_settings_are_those_of_the_choice(tmp_path: Path) -> None:
    tuned = planned_cache.settings(several(), ["python", "train.py"])
    assert tuned is not None
    tuned_file.write(tmp_path / "plan.json", tuned)
    (entry,) = tuned_file.read(tmp_path / "plan.json").loaders
    assert entry.cache == tuned_file.SampleCache(
        ("dataset", "transform"), 1, ("Resize", "Flip"), MEMORY.folder, MEMORY.budget_bytes
    )
    assert entry.loader.call_site == "train.py:3"
    assert (entry.setting.num_workers, entry.setting.persistent_workers) == (2, True)
    assert entry.setting == entry.before


def printed(planning: CachePlanning, output: Path | None = Path("plan.json")) -> str:
    file = io.StringIO()
    console = plain_console(file, width=80)
    plan_report.write(console, planning, words=["python", "train.py"], output=output)
    assert max(map(len, file.getvalue().splitlines())) <= 80
    return file.getvalue()


def test_the_report_has_the_cuts_the_choice_and_what_to_do_next() -> None:
    text = printed(several())
    lines = [line.split() for line in text.splitlines()]
    assert ["Resize", "yes", "5.00", "ms", "1.00", "ms", "195", "KiB", "100", "µs"] in lines
    assert ["Flip", "no:", "torch", "5.10", "ms", "900", "µs", "-", "-"] in lines
    words = " ".join(text.split())
    assert "after Flip: random numbers are drawn before it" in words
    assert "Cache what comes from Resize, in RAM." in words
    assert "lotus run --settings plan.json -- python train.py" in words


def test_the_report_warns_of_files_that_are_not_seen() -> None:
    event = cut(0, "own", [5.0] * 4)
    assert "files were read that cannot be seen" in " ".join(
        printed(chosen_of(event, unseen_files=True)).split()
    )
    assert "cannot be seen" not in printed(chosen_of(event))


def test_a_report_of_a_refused_data_set_has_no_next_command() -> None:
    text = printed(chosen_of(refused="its data set is iterable", length=None), None)
    assert "Samples cannot be cached: its data set is iterable." in text
    assert "lotus run" not in text


def test_the_document_has_numbers_only() -> None:
    document = plan_report.document(several(), output=Path("plan.json"))
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["chosen"]["cut"] == 1
    assert len(document["offers"]) == 4


def test_the_room_in_memory_and_on_disk(tmp_path: Path) -> None:
    place, notes = cache_room.ram(1 << 20, 0)
    assert (place.budget_bytes, notes) == (1 << 20, [])
    everything, notes = cache_room.ram(1 << 60, 0)
    assert everything.budget_bytes < 1 << 60
    assert "less than --ram" in notes[0]
    half, _ = cache_room.ram(None, 0)
    assert cache_room.ram(None, 1 << 60)[0].budget_bytes == 0
    assert half.budget_bytes >= 0
    folder = tmp_path / "kept"
    on_disk, _ = cache_room.disk(1 << 20, folder, 0)
    assert on_disk is not None
    assert on_disk.folder == str(folder)
    assert on_disk.budget_bytes == 1 << 20
    assert on_disk.write_bytes_per_s > 0
    assert on_disk.read_bytes_per_s > 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(LotusError, match="name another folder with --folder"):
        cache_room.disk(None, tmp_path / "file" / "kept", 0)
