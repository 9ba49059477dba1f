"""Stacks are of the loop and the step in which they were taken."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.batches.long_steps import long_steps
from lotus.analysis.common.scope import Scope, scopes
from lotus.analysis.observations.step_stacks import in_phases, stacks_in_pauses
from lotus.analysis.summary import summarise
from tests.unit.simulated import MS, Plan

TRAIN, SAVE, EVALUATE, LATER, BESIDE = range(5)
NAMES = ["train", "save", "evaluate", "later", "beside"]
OTHER = 7  # the loader of a loop within each long step


def rows(part: str, stack: int, samples: int) -> list[dict[str, object]]:
    frame = {"part": part, "stack": stack, "file": "/a/train.py", "text": "", "samples": samples}
    return [
        {**frame, "depth": 0, "function": "<module>", "line": 90},
        {**frame, "depth": 1, "function": NAMES[stack], "line": 10 + stack},
    ]


def own_code(samples: list[int]) -> pd.DataFrame:
    parts = ["step", "step", "step", "pause", "beside"]
    kept = [row for stack, part in enumerate(parts) for row in rows(part, stack, samples[stack])]
    return pd.DataFrame(kept)


@pytest.fixture
def run() -> SimpleNamespace:
    """40 steps, each tenth of 100 ms, of which 60 ms are a loop over another loader."""
    run = Plan(step=lambda batch: 100.0 if batch % 10 == 9 else 10.0).run()
    run.waits["pid"] = run.epochs["pid"] = 1
    waits = run.waits
    begin = (waits["start_ns"] + waits["wait_ns"]).to_numpy()
    long = waits["batch"].to_numpy() % 10 == 9
    end = float(run.epochs["end_ns"].iloc[0])
    times = {
        TRAIN: [*(begin[~long] + 5 * MS), *(begin[long] + 5 * MS)],
        SAVE: [*(begin[long] + 15 * MS), *(begin[long] + 95 * MS)],
        EVALUATE: [begin[long][0] + ms * MS for ms in (25, 40, 60, 75)],
        LATER: [end + 10 * MS, end + 15 * MS, begin[0] + 2 * MS],
    }
    run.stack_times = pd.DataFrame(
        [(stack, 1, int(time), 0) for stack, all_of in times.items() for time in all_of],
        columns=["stack", "pid", "time_ns", "bound_ns"],
    )
    run.own_code = own_code([*map(len, times.values()), 20])
    run.inner = pd.DataFrame(
        {"pid": 1, "loader": OTHER, "start_ns": begin[long] + 20 * MS}
    ).assign(end_ns=begin[long] + 80 * MS)  # fmt: skip
    return run


def scope_of(run: SimpleNamespace, inner: bool) -> Scope:
    (scope,) = scopes(run)
    loops = scope.loops()
    return replace(scope, loops=lambda: pd.concat([loops, run.inner]) if inner else loops)


def counted(stacks: pd.DataFrame) -> dict[tuple[str, str], int]:
    own = stacks[stacks["depth"] == 1]
    keys = zip(own["part"], own["function"], own["samples"], strict=True)
    assert own["stack"].is_unique
    return {(part, function): samples for part, function, samples in keys}


def test_each_is_of_its_step_and_loop(run: SimpleNamespace) -> None:
    scope = scope_of(run, inner=True)
    assert counted(in_phases(scope, long_steps(scope))) == {
        ("step", "train"): 36,
        ("long-step", "train"): 4,
        ("long-step", "save"): 8,
        ("inner-loop", "evaluate"): 4,
        ("pause", "later"): 2,
        ("step", "later"): 1,
        ("beside", "beside"): 20,
    }


def test_of_another_process_and_of_another_loop_it_is_not_of_this_one(run: SimpleNamespace) -> None:
    scope = scope_of(run, inner=True)
    other = replace(scope, loader=OTHER, waits=scope.waits.iloc[:0])
    parts = {part for part, _ in counted(in_phases(other, None))}
    assert parts == {"step", "other-loop", "pause", "beside"}
    elsewhere = replace(scope, stack_times=scope.stack_times.assign(pid=2))
    parts = {part for part, _ in counted(in_phases(elsewhere, long_steps(scope)))}
    assert parts == {"pause", "beside"}


def test_without_times_all_stays_as_it_is(run: SimpleNamespace) -> None:
    scope = replace(scope_of(run, inner=True), stack_times=pd.DataFrame())
    assert in_phases(scope, long_steps(scope)) is scope.own_code
    run.stack_times = pd.DataFrame()
    assert stacks_in_pauses(run) is run.own_code


def test_a_pause_has_what_was_taken_in_no_loop(run: SimpleNamespace) -> None:
    found = counted(stacks_in_pauses(run))
    assert found[("pause", "later")] == 2
    assert [function for part, function in found if part == "pause"] == ["later"]


def test_the_verdict_names_the_lines_of_each(run: SimpleNamespace) -> None:
    causes = {cause.kind: cause for cause in summarise(run).loaders[0].verdict.causes}
    assert causes["consumer"].title.endswith("most of it at train (train.py:10)")
    assert causes["long-steps"].title.endswith("most of it at save (train.py:11)")
    assert "at save (train.py:11)" in causes["long-steps"].advice


def test_times_of_stacks_of_which_none_is_kept_change_nothing(run: SimpleNamespace) -> None:
    run.own_code = run.own_code.iloc[:0]
    assert not len(in_phases(scopes(run)[0], None))
    assert not len(stacks_in_pauses(run))
    assert summarise(run).verdict is not None


def test_without_a_loop_all_stacks_are_of_pauses(run: SimpleNamespace) -> None:
    run.epochs, run.waits = run.epochs.iloc[:0], run.waits.iloc[:0]
    parts = in_phases(scopes(run)[0], None)["part"]
    assert "step" not in set(parts)
    assert set(stacks_in_pauses(run)["part"]) == {"pause", "beside"}
