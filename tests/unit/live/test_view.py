"""What `lotus top` knows of a run: from made logs and made states of processes."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lotus.analysis.batches import components
from lotus.analysis.summary import summarise
from lotus.common.machine.process_status import ProcessStatus
from lotus.format.hang_threshold import hang_threshold_ns
from lotus.live import log_digest
from lotus.live.hang_detection import Doing, Loop, judge
from lotus.live.log_digest import WANTED
from lotus.live.loop_times import Loops, Total
from lotus.live.snapshots import Seen, Snapshot
from lotus.live.tailing import Tail
from lotus.live.view import LiveRun, View
from lotus.reading.logs.process_states import State
from lotus.reading.run import load
from lotus.reporters.live import top_report
from tests.logs import MS, START_NS, ProcessLog, RunBuilder, Sample

S = 1_000_000_000
NOW = START_NS + 100 * S


def state(pid: int, worker: int = -1, phase: str = "step", **fields: Any) -> State:
    known = {"since_ns": NOW, "start_ns": START_NS, "loader": -1, "epoch": -1, "batch": -1}
    rest = dict.fromkeys(("sample", "sample_since_ns", "operation", "operation_since_ns"))
    return State(pid=pid, worker=worker, phase=phase, **(known | rest | fields))


def seen(
    process_state: State, status: str = "S", host: str = "host", cpu_ns: int = 0, **more: Any
) -> Seen:
    kernel = ProcessStatus(status, START_NS, cpu_ns, **more) if status else None
    return Seen(host, process_state, kernel, host == "host")


def shot(*processes: Seen, now: int = NOW) -> Snapshot:
    alive = any(process.kernel is not None for process in processes)
    wall = 1_700_000_000 * S + now - START_NS + MS
    return Snapshot(now, processes, wall, "host", alive)


def followed(run: RunBuilder) -> LiveRun:
    run.save()  # not `end`: the run goes on
    live = LiveRun()
    live.add(Tail(run.path, WANTED).read())
    return live


def two_workers(path: Path, taken: int = 10, **manifest: Any) -> RunBuilder:
    """A run of one loader: batch k was made in 2 s, and taken at k + 3 s after a wait of 0.25 s."""
    run = RunBuilder(path, **({"state": "running"} | manifest))
    main = run.process(100)
    main.loader(0, num_workers=2, batch_size=2, prefetch_factor=2)
    main.iterator(0, 0, START_NS, workers=[101, 102])
    workers = [run.process(101 + number, ppid=100) for number in range(2)]
    for number, log in enumerate(workers):
        log.worker(number, num_workers=2)
        log.operations("Load", "Crop")
    for batch in range(taken + 2):
        sample = Sample(2 * batch, 900 * MS, [("Load", 600 * MS), ("Crop", 200 * MS)])
        samples = [sample, sample._replace(index=2 * batch + 1)]
        begin = START_NS + batch * S
        workers[batch % 2].batch(batch, start_ns=begin, samples=samples, collate_ns=100 * MS)
        if batch < taken:
            end = START_NS + (batch + 3) * S
            main.wait(0, 0, batch, start_ns=end - S // 4, end_ns=end)
    return run


def pages(batch: int = 10, **main: Any) -> list[State]:
    own = {"phase": "wait", "loader": 0, "epoch": 0, "batch": batch, "since_ns": NOW}
    return [
        state(100, **(own | main)),
        state(101, 0, "idle"),
        state(102, 1, "fetch", batch=11, sample=22, sample_since_ns=NOW, operation="Load",
              operation_since_ns=NOW),
    ]  # fmt: skip


def of_two_workers(path: Path, now: int, **main: Any) -> View:
    run = two_workers(path)
    moved = {"since_ns": now} | main
    states = [replace(page, since_ns=now) for page in pages()[1:]]
    processes = [seen(page) for page in (pages(**moved)[0], *states)]
    return followed(run).view(shot(*processes, now=now), run.manifest)


def test_rates_are_of_the_window_and_of_the_whole(tmp_path: Path) -> None:
    now = START_NS + 13 * S
    (group,) = of_two_workers(tmp_path / "R", now).groups
    # The window of 10 s holds the batches taken from 4 s to 12 s; two samples each.
    assert group.recent.span_ns == 10 * S
    assert group.recent.batches == pytest.approx(0.9)
    assert group.recent.samples == pytest.approx(1.8)
    assert group.recent.wait_share == pytest.approx(9 * 0.25 / 10)
    assert group.taken == 10
    whole = 13 - 2.75  # since the first `next` began
    assert group.overall.span_ns == pytest.approx(whole * S)
    assert group.overall.wait_share == pytest.approx(10 * 0.25 / whole)


def test_the_wait_in_hand_counts(tmp_path: Path) -> None:
    now = START_NS + 13 * S
    (group,) = of_two_workers(tmp_path / "R", now, since_ns=now - S // 2).groups
    assert group.recent.wait_share == pytest.approx((9 * 0.25 + 0.5) / 10)
    (group,) = of_two_workers(tmp_path / "S", now, since_ns=now - S // 2, phase="step").groups
    assert group.recent.wait_share == pytest.approx(9 * 0.25 / 10)


def test_batches_that_are_ready_and_what_may_be(tmp_path: Path) -> None:
    (group,) = of_two_workers(tmp_path / "R", START_NS + 13 * S).groups
    assert (group.ready, group.capacity) == (2, 4)
    assert [worker.worker for worker in group.workers] == [0, 1]
    run = two_workers(tmp_path / "S", every=2)  # of half the batches nothing is recorded
    (group,) = followed(run).view(shot(*map(seen, pages())), run.manifest).groups
    assert group.ready is None


def test_shares_of_operations_add_up_to_the_time_of_making(tmp_path: Path) -> None:
    (group,) = of_two_workers(tmp_path / "R", START_NS + 13 * S).groups
    shares = dict(group.operations)
    made = 2 * 0.9 + 0.1
    assert shares["Load"] == pytest.approx(1.2 / made)
    assert shares["Crop"] == pytest.approx(0.4 / made)
    assert shares["own code"] == pytest.approx(0.2 / made)
    assert shares["collate"] == pytest.approx(0.1 / made)
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "Load"


def test_an_operation_inside_another_is_not_counted_twice() -> None:
    low = np.dtype([("start_low", "<u4"), ("end_low", "<u4"), ("operation", "<u4")])
    begin = 2**32 - 10  # the lower half of the clock wraps within the first sample
    sample = np.dtype([("start_ns", "<u8"), ("duration_ns", "<u8"), ("ops", "<u8")])
    samples = np.array([(begin, 100, 3), (begin + 100, 100, 4)], sample)
    # In order of completion: two inside one around them; then one alone in the next sample.
    ops = [(begin + 1, 9), (begin + 20, 9), (begin, 50), (begin + 120, 10)]
    wrapped = [(at % 2**32, (at + took) % 2**32, 1) for at, took in ops]
    rows = np.array([(2, 4)], [("n_samples", "<u4"), ("n_ops", "<u4")])
    outer = log_digest.top_level(rows, samples, np.array(wrapped, low))
    assert outer.tolist() == [False, False, True, True]


def test_names_are_those_of_the_report() -> None:
    assert log_digest.OWN == components.OWN
    assert log_digest.COLLATE == components.COLLATE
    assert log_digest.REST == components.REST


def test_logs_are_read_as_they_grow_and_a_torn_frame_waits(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    followed(run)
    log: ProcessLog = run.logs[0]
    whole, header = bytes(log.data), log.header_size
    tail, live = Tail(run.path, WANTED), LiveRun()
    for end in (3, header + 5, len(whole) - 7, len(whole), len(whole)):
        log.path.write_bytes(whole[:end])
        live.add(tail.read())
    (group,) = live.view(shot(*map(seen, pages())), run.manifest).groups
    assert group.taken == 10
    assert tail.read() == []


def test_damage_in_a_log_is_passed_over(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    main = run.logs[0]
    followed(run)
    data = bytearray(main.path.read_bytes())
    data[-300] ^= 0xFF  # in one of the last frames
    main.path.write_bytes(bytes(data))
    (run.path / "events" / "foreign.ltr").write_bytes(b"something else")
    (run.path / "events" / "link.ltr").symlink_to("/etc/passwd")
    live = LiveRun()
    live.add(Tail(run.path, WANTED).read())
    (group,) = live.view(shot(*map(seen, pages())), run.manifest).groups
    assert 8 <= group.taken <= 9


@pytest.mark.parametrize("junk", [None, -1, 1 << 70, "x", [[]], {"a": []}, [None, "x", 1 << 70]])
def test_events_of_any_content_are_borne(tmp_path: Path, junk: Any) -> None:
    run = two_workers(tmp_path / "R")
    main = run.logs[0]
    fields = ["loader", "epoch", "workers", "operations", "batch_size", "length", "time_ns"]
    fields += ["prefetch_factor", "text", "call_site", "dataset", "in_order", "resumed"]
    for event in ("operations", "loader", "iterator", "epoch_end", "stopped", "note", "other"):
        main.event(event, **dict.fromkeys(fields, junk))
        main.event(event, **(dict.fromkeys(fields, junk) | {"loader": 7, "epoch": 0}))
    states = [*pages(), state(103, 0, "idle", loader=7), state(104, loader=7, epoch=0)]
    view = followed(run).view(shot(*map(seen, states)), run.manifest)
    text = (
        top_report.text(top_report.lines(view, "R", 100))
        + top_report.status(view)
        + json.dumps(top_report.document(view, run="R"))
    )
    assert "main" in text


def test_cpu_is_the_difference_of_two_looks(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    live = followed(run)
    first = live.view(shot(seen(pages()[0], cpu_ns=5 * S)), run.manifest)
    assert math.isnan(first.groups[0].main.cpu)
    later = shot(seen(pages()[0], cpu_ns=5 * S + S // 2), now=NOW + S)
    assert live.view(later, run.manifest).groups[0].main.cpu == pytest.approx(0.5)


def test_after_the_last_batch_the_program_is_out_of_its_loop(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    ended = NOW - 60 * S
    run.logs[0].epoch_end(0, 0, time_ns=ended, batches=10)
    # The page still tells of the `next` that found the end.
    states = [replace(page, since_ns=ended - S) for page in pages()[:1]]
    (group,) = followed(run).view(shot(*map(seen, states)), run.manifest).groups
    assert group.main.phase == "step"
    assert group.verdict.kind == "outside"
    assert "60.0 s ago" in group.verdict.headline
    assert group.ready is None


def test_idle_workers_that_ask_again_do_not_count_as_moving(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    run.process(103, ppid=100).worker(2)  # it has never had a batch
    run.logs[0].iterator(0, 0, START_NS, workers=[101, 102, 103])
    main, first, second = pages(batch=11, since_ns=NOW - 60 * S)
    stuck = replace(second, since_ns=NOW - 60 * S, sample_since_ns=NOW - 60 * S,
                    operation_since_ns=NOW - 60 * S)  # fmt: skip
    states = [main, first, stuck, state(103, 2, "idle")]
    (group,) = followed(run).view(shot(*map(seen, states)), run.manifest).groups
    assert group.verdict.kind == "hung"
    assert group.verdict.pid == 102


def test_a_recording_that_stopped_is_no_hang(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    old = [replace(page, since_ns=NOW - 50 * S) for page in pages()]
    fault = [{"event": "fault", "pid": 100, "error": "OSError: disk full", "time_ns": NOW}]
    view = followed(run).view(shot(*map(seen, old)), run.manifest, fault)
    assert view.groups[0].verdict.kind == "unwatched"
    assert any("disk full" in note for note in view.notes)
    run = two_workers(tmp_path / "S")
    run.logs[0].event("stopped", why="max-log", bytes=10)
    view = followed(run).view(shot(*map(seen, old)), run.manifest)
    assert view.groups[0].verdict.kind == "unwatched"


def test_persistent_workers_of_the_second_epoch(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    main, first, second = run.logs
    main.epoch_end(0, 0, time_ns=START_NS + 20 * S, batches=12)
    main.iterator(0, 1, START_NS + 21 * S, workers=[101, 102], resumed=True)
    for number, log in enumerate((first, second)):
        log.resume()
        log.batch(number, start_ns=START_NS + 22 * S, samples=[Sample(number, S)])
    main.wait(0, 1, 0, start_ns=START_NS + 23 * S, end_ns=START_NS + 24 * S)
    states = pages(batch=1, epoch=1)
    (group,) = followed(run).view(shot(*map(seen, states)), run.manifest).groups
    assert (group.epoch, group.ready) == (1, 1)  # batch 1 of this epoch; those before are gone


def test_workers_of_another_loader_are_counted_apart(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    run.logs[0].loader(1, num_workers=1)
    run.logs[0].iterator(1, 0, START_NS, workers=[103])
    other = run.process(103, ppid=100)
    other.worker(0)
    states = [*pages(), state(103, 0, "idle")]
    (group,) = followed(run).view(shot(*map(seen, states)), run.manifest).groups
    assert [worker.pid for worker in group.workers] == [101, 102]
    assert group.others == 1


def test_ranks_are_groups_and_the_worst_speaks(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "R")
    states = []
    for rank in (1, 0):
        main = run.process(200 + rank, rank=rank, world_size=2)
        main.loader(0, num_workers=1)
        main.iterator(0, 0, START_NS, workers=[300 + rank])
        run.process(300 + rank, ppid=200 + rank).worker(0)
        old = NOW - 60 * S
        waiting = {"phase": "wait", "since_ns": old, "batch": 0}
        own = waiting if rank else {"phase": "step", "since_ns": old}
        states.append(state(200 + rank, loader=0, epoch=0, **own))
        sample = {"batch": 0, "sample": 17, "sample_since_ns": old} if rank else {}
        worker = state(300 + rank, 0, "fetch" if rank else "idle", since_ns=old, **sample)
        states.append(worker)
    view = followed(run).view(shot(*map(seen, states)), run.manifest)
    assert [group.rank for group in view.groups] == [0, 1]
    assert [group.verdict.kind for group in view.groups] == ["step", "hung"]
    assert view.verdict is view.groups[1].verdict
    assert view.verdict.sample == 17


@pytest.mark.parametrize(
    ("processes", "manifest", "expected"),
    [
        ([], None, "absent"),
        ([], {}, "begun"),
        ([seen(state(100))], {}, "running"),
        ([seen(state(100), "")], {}, "killed"),
        ([seen(state(100), "", host="elsewhere")], {}, "elsewhere"),
        ([seen(state(100), "")], {"state": "ended", "end_ns": NOW}, "ended"),
    ],
)
def test_states_of_a_run(
    processes: Sequence[Seen], manifest: dict[str, Any] | None, expected: str
) -> None:
    if manifest is not None:
        manifest = {"state": "running", "command": ["x"], "start_ns": START_NS} | manifest
    assert LiveRun().view(shot(*processes), manifest).state == expected


def test_a_killed_run_is_seen_at_its_last_sign_of_life(tmp_path: Path) -> None:
    run = two_workers(tmp_path / "R")
    old = [replace(page, since_ns=NOW - 50 * S) for page in pages()]
    stopped = replace(old[2], sample_since_ns=NOW - 49 * S, operation_since_ns=NOW - 48 * S)
    processes = [seen(page, "") for page in (*old[:2], stopped)]
    view = followed(run).view(shot(*processes, now=NOW + 1000 * S), run.manifest)
    assert view.state == "killed"
    assert view.seen_ns == NOW - 48 * S
    assert view.age_ns == 1048 * S
    (worker,) = (worker for worker in view.groups[0].workers if worker.pid == 102)
    assert (worker.sample, worker.sample_ns, worker.alive) == (22, S, False)


@pytest.mark.parametrize("over", ["ended", "killed"])
def test_a_run_that_is_over_has_the_rates_of_its_report(tmp_path: Path, over: str) -> None:
    run = two_workers(tmp_path / "R", taken=8)
    main, last = run.logs[0], START_NS + 10 * S + S // 5
    main.epoch_end(0, 0, last + S // 2, batches=8, last_next_ns=last)
    main.shutdown(0, 0, last + S // 4, last + S // 2)
    begin = START_NS + 30 * S
    main.iterator(0, 1, begin, begin + S // 2, workers=[101, 102])
    for batch in range(3):
        taken = begin + (batch + 1) * S
        main.wait(0, 1, batch, start_ns=taken - S // 10, end_ns=taken)
        run.logs[1].batch(batch, epoch=1, start_ns=taken - S // 2, samples=[Sample(batch, MS)] * 2)
    end = NOW + 500 * S
    manifest = run.manifest | ({"state": "ended", "end_ns": end} if over == "ended" else {})
    run.manifest |= manifest
    run.write_manifest()
    gone = [seen(state(100, loader=0, epoch=1, batch=2, phase="ended"), "")]
    view = followed(run).view(shot(*gone, now=end + S), manifest)
    assert view.state == over
    (group,) = view.groups
    (loader,) = summarise(load(run.path)).loaders
    assert group.overall.span_ns == pytest.approx(loader.times["loop_ns"])
    assert group.overall.samples == pytest.approx(loader.times["samples_per_s"])
    assert group.overall.wait_share == pytest.approx(1 - loader.verdict.step_share)
    assert (group.overall.loops, group.recent.loops) == (2, 1)
    assert group.recent.span_ns == pytest.approx(loader.epochs["loop_ns"].iloc[1])
    assert dict(group.operations)["Load"] > 0.5
    text = top_report.text(top_report.lines(view, "R", 100))
    assert "over 2 loops of" in text
    assert "in the last" not in text


def test_loops_that_are_no_longer_kept_one_by_one_count() -> None:
    loops = Loops()
    for epoch in range(2500):
        loop = loops.of(0, epoch)
        loop.begin_ns, loop.taken_ns, loop.waited_ns, loop.taken = 1, 1 + 10 * MS, 4 * MS, 2
    assert len(loops.epochs) <= 1000
    assert loops.totals(0) == (Total(1, 10 * MS, 4 * MS, 2), Total(2500, 25 * S, 10 * S, 5000))


# -- verdicts ----------------------------------------------------------------------------------


def doing(worker: int, phase: str, seconds: float = 60, **fields: Any) -> Doing:
    known: dict[str, Any] = {"alive": True, "status": "S", "asleep": "do_poll", "cpu": 0.0}
    known |= {"pid": 100 + worker + 1, "since_ns": int(seconds * S), "quiet_ns": int(seconds * S)}
    return Doing(worker=worker, phase=phase, **(known | fields))


def at_sample(worker: int = 1, seconds: float = 60, **fields: Any) -> Doing:
    known = {"batch": 5, "sample": 17, "sample_ns": int(seconds * S)}
    return doing(worker, "fetch", seconds, **(known | fields))


WAIT = doing(-1, "wait", batch=5)
IDLE = doing(0, "idle")


@pytest.mark.parametrize(
    ("worker", "kind", "word"),
    [
        (at_sample(), "hung", "do_poll"),
        (at_sample(asleep="futex_wait_queue"), "hung", "waits for a lock"),
        (at_sample(status="R"), "slow", "is computing"),
        (at_sample(cpu=0.99), "slow", "99%"),
        (at_sample(status="D", asleep="folio_wait_bit"), "storage", "state D"),
    ],
)
def test_the_worker_that_has_the_awaited_batch_is_named(
    worker: Doing, kind: str, word: str
) -> None:
    ahead = doing(2, "fetch", batch=6, sample=99, sample_ns=60 * S)
    verdict = judge(Loop(WAIT, [IDLE, worker, ahead], awaited=5))
    assert (verdict.kind, verdict.pid, verdict.worker) == (kind, worker.pid, 1)
    assert (verdict.batch, verdict.sample) == (5, 17)
    assert verdict.bad
    text = "\n".join([verdict.headline, *verdict.lines])
    assert "worker 1 is at sample 17 of batch 5" in text
    assert word in text
    assert "waits for batch 5" in text
    assert verdict.commands == [f"py-spy dump --pid {worker.pid}"]


def test_out_of_order_the_longest_is_named() -> None:
    other = at_sample(0, 30, sample=3)
    verdict = judge(Loop(WAIT, [other, at_sample(1, 60)], awaited=9, in_order=False))
    assert verdict.sample == 17
    quiet = judge(Loop(WAIT, [at_sample(0, 5), at_sample(1, 60)], awaited=9, in_order=False))
    assert quiet.kind == "moving"


def test_the_worker_that_has_not_begun_the_awaited_batch_is_found_by_its_turn() -> None:
    starting = doing(1, "starting")
    verdict = judge(Loop(WAIT, [IDLE, starting], awaited=1))
    assert verdict.pid == starting.pid
    assert "its start" in verdict.headline


def test_nobody_makes_the_batch() -> None:
    idle = [IDLE, doing(1, "idle")]
    verdict = judge(Loop(WAIT, idle, awaited=5))
    assert verdict.kind == "lost"
    assert verdict.headline.startswith("DEADLOCK: ")
    assert verdict.headline.endswith("no process is making batch 5")
    assert "all 2 workers are idle" in verdict.lines[1]
    verdict = judge(Loop(WAIT, idle, awaited=5, awaited_made=True))
    assert verdict.kind == "lost"
    assert "was made and has not arrived" in verdict.lines[1]


def test_without_workers_the_main_process_is_named() -> None:
    verdict = judge(Loop(at_sample(-1), [], awaited=5))
    assert (verdict.kind, verdict.worker, verdict.sample) == ("hung", -1, 17)
    verdict = judge(Loop(WAIT, [], awaited=5))  # in the sampler
    assert (verdict.kind, verdict.worker, verdict.sample) == ("hung", -1, None)


def test_the_programs_own_step_is_not_the_loaders() -> None:
    verdict = judge(Loop(doing(-1, "step"), [IDLE], awaited=5))
    assert verdict.kind == "step"
    assert not verdict.bad
    assert judge(Loop(doing(-1, "step"), [], outside=True)).kind == "outside"


def test_a_stop_is_told_at_once_and_a_dead_worker_too() -> None:
    stopped = judge(Loop(doing(-1, "wait", 0.1, status="T"), [IDLE], awaited=5))
    assert stopped.kind == "stopped"
    assert stopped.commands == ["kill -CONT 100"]
    held = judge(Loop(WAIT, [at_sample(status="t")], awaited=5))
    assert (held.kind, held.commands) == ("stopped", [])
    gone = at_sample(seconds=0.1, alive=False, status="")
    dead = judge(Loop(doing(-1, "wait", 0.1), [IDLE, gone], awaited=5))
    assert (dead.kind, dead.pid, dead.sample) == ("dead", gone.pid, 17)
    ended = replace(gone, phase="ended")
    assert judge(Loop(doing(-1, "wait", 0.1), [IDLE, ended], awaited=5)).kind == "moving"


def test_what_is_long_depends_on_a_batch() -> None:
    assert hang_threshold_ns(float("nan")) == hang_threshold_ns(0.1 * S) == 10 * S
    assert hang_threshold_ns(4 * S) == 80 * S
    loop = Loop(WAIT, [at_sample(1, 60)], awaited=5, typical_ns=4 * S)
    assert judge(loop).kind == "moving"
    assert judge(replace(loop, typical_ns=2 * S)).kind == "hung"
