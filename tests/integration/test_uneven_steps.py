"""What only some training steps do is told from the step itself, in time and in stack samples."""

import pytest

from lotus.analysis.summary import summarise
from tests.integration.conftest import PROGRAMS, PYTHON

FILE = "uneven_steps.py"
LEAST = 30  # samples, from which lines are named for certain


@pytest.fixture(scope="module")
def traced(torch, trace_command):
    """traced(what): the run of the program, traced once, and the causes of its first loop."""
    known = {}

    def run(what):
        if what not in known:
            got = trace_command(PYTHON, PROGRAMS / FILE, what)
            assert (got.code, got.out, got.err) == (0, b"", b"")
            (loader,) = (
                each for each in summarise(got.run).loaders if "train_loader" in each.scope.title
            )
            known[what] = got.run, {cause.kind: cause for cause in loader.verdict.causes}
        return known[what]

    return run


def are_sampled(run):
    """Whether there are stacks with times enough to name lines of long and of usual steps."""
    return len(run.stack_times) >= LEAST


@pytest.mark.parametrize("what", ["save", "evaluate"])
def test_each_tenth_step_is_long(traced, what):
    _, causes = traced(what)
    long, step = causes["long-steps"], causes["consumer"]
    assert long.title.startswith("long training steps (1 of 10, ")
    assert long.ns > step.ns  # 30 units of work a tenth step, 10 in ten usual ones
    assert long.evidence["long_step_ns"] > 4 * long.evidence["usual_step_ns"]


def test_a_loop_over_another_loader_within_it_is_named(traced):
    _, causes = traced("evaluate")
    long = causes["long-steps"]
    assert f"most of it in the loop over validation ({FILE}:" in long.title
    assert long.evidence["inner_loop_ns"] > 0.5 * long.evidence["long_step_ns"]
    _, causes = traced("save")
    assert causes["long-steps"].evidence["inner_loop_ns"] == 0


@pytest.mark.parametrize("what", ["save", "evaluate"])
def test_lines_of_long_steps_are_not_those_of_the_step(traced, what):
    run, _ = traced(what)
    if not are_sampled(run):
        pytest.skip("py-spy took no stacks")
    frames = run.own_code[run.own_code["function"].isin(["train", what])]
    times = run.stack_times.merge(frames[["stack", "function"]].drop_duplicates(), on="stack")
    steps = run.waits[run.waits["loader"] == run.waits["loader"].iloc[0]]
    begin = (steps["start_ns"] + steps["wait_ns"]).to_numpy()
    row = begin.searchsorted(times["time_ns"], side="right") - 1
    # What a stack shows from outside, the times from inside show as well.
    long = steps["batch"].to_numpy()[row] % 10 == 9
    of_train, of_it = (long[times["function"] == name].mean() for name in ("train", what))
    assert of_it > 0.8
    assert of_train < 0.5 * of_it  # a tenth, but for those near the edges


def test_a_plain_step_has_no_long_ones(traced):
    _, causes = traced("plain")
    assert "long-steps" not in causes
    assert "consumer" in causes
