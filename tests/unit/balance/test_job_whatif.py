"""`lotus whatif --ranks`: the question asked of a known job, the answer shown."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lotus.balance.job_whatif import JobChange, JobPrediction, answer, stragglers
from lotus.balance.rank_measurements import measure
from lotus.cli import main
from lotus.common.errors import LotusError
from lotus.reporters.base.console import plain_console
from lotus.reporters.ranks import job_report as reporter
from lotus.settings import share_plan
from lotus.settings.share_plan import SharePlan
from lotus.tune.simulation.job_simulation import Stragglers
from tests.logs import MS, RunBuilder
from tests.simulation import simulate
from tests.unit.many_ranks import Costs, job

MIXED = [Costs(1.0), Costs(3.0), Costs(2.0), Costs(1.0)]


def answered(ranks: int, **question: object) -> JobPrediction:
    return answer(measure(job(MIXED)), JobChange(ranks, **question))  # type: ignore[arg-type]


def test_the_job_itself_is_simulated_as_it_was() -> None:
    prediction = answered(4)
    assert abs(prediction.error) < 0.02
    assert prediction.then.step_s == prediction.today.step_s
    assert prediction.then.last[1] > 0.99
    assert not any("off the measured rate" in note for note in prediction.notes)


def test_more_ranks_repeat_the_traced_ones() -> None:
    prediction = answered(64)
    # The slowest of 16 ranks with 24 ms and 2 %, and the ring's second term: 63/64 of 4/3.
    assert prediction.then.step_s == pytest.approx(
        24 * (1 + 1.77 * 0.02) * 1e-3 + 1.3125e-3, rel=0.01
    )
    assert prediction.then.samples_per_s == pytest.approx(64 * 8 / prediction.then.step_s, rel=0.01)
    assert sum(prediction.then.last[1::4]) > 0.99
    assert any("runs as the traced rank n mod 4" in note for note in prediction.notes)
    assert any(
        "if all were latency, it would be 21.0 times, 21 ms" in note for note in prediction.notes
    )


def test_a_plan_is_tried_by_each_ranks_line() -> None:
    prediction = answered(4, batch_sizes=(12, 4, 5, 11))
    assert prediction.then.step_s == pytest.approx(13e-3, rel=0.05)
    with pytest.raises(LotusError, match="the plan is for 3 ranks, not for 4: use --ranks 3"):
        answered(4, batch_sizes=(1, 2, 3))


def test_links_by_the_formula_and_stragglers() -> None:
    links = {"gradients": 1e6, "link_bandwidth": 1e9, "link_latency_ns": 1e5}
    prediction = answered(8, collective="tree", **links)
    assert prediction.then.collective_s == pytest.approx(6 * (0.1e-3 + 1e-3))
    assert answered(8, **links).then.collective_s == pytest.approx(14 * (0.1e-3 + 0.125e-3))
    assert answered(16, collective="tree").then.collective_s == pytest.approx(
        2 * answered(4).then.collective_s
    )
    slow = answered(4, stragglers=Stragglers(1, times=4.0))
    assert slow.then.last[3] > 0.99
    with pytest.raises(LotusError, match="--gradients and --link-bandwidth"):
        answered(4, gradients=1e6)
    with pytest.raises(LotusError, match="5 stragglers"):
        answered(4, stragglers=Stragglers(5))


def test_a_collective_that_was_not_traced_is_said() -> None:
    prediction = answer(measure(job(MIXED, synced=False)), JobChange(4))
    assert prediction.collective == "not traced"
    assert any("taken as 0" in note for note in prediction.notes)


def test_what_is_shown() -> None:
    file = io.StringIO()
    reporter.write(plain_console(file, 100), answered(64))
    text = " ".join(file.getvalue().split())
    for words in ("straggler's share", "efficiency", "last today rank 1 in", "reliance"):
        assert words in text
    document = json.loads(json.dumps(reporter.document(answered(64)), allow_nan=False))
    assert document["whatif"]["ranks"] == 64
    assert len(document["whatif"]["last"]) == 64


def test_a_job_that_is_not_simulated_as_it_was_gets_no_answer() -> None:
    measured = measure(job(MIXED))
    for times in (0.5, 2.0):
        prediction = answer(
            replace(measured, measured_ns=times * measured.measured_ns), JobChange(64)
        )
        file = io.StringIO()
        reporter.write(plain_console(file, 100), prediction)
        text = " ".join(file.getvalue().split())
        assert "this run cannot be predicted" in text
        assert f"is {prediction.error:+.0%} off the measured rate" in text
        assert "lotus trace -o RUN -- COMMAND" in text
        assert "times as many" not in text
        document = json.loads(json.dumps(reporter.document(prediction), allow_nan=False))
        assert document["times_the_samples_per_second"] is None


# The commands, on a run directory


def recorded(path: Path, *steps_ms: int) -> str:
    """A run whose ranks take steps of so long, and do not wait for each other."""
    builder = RunBuilder(path)
    for rank, step in enumerate(steps_ms):
        simulate(
            path,
            workers=2,
            batches=30,
            batch_size=8,
            ops=(("Loader", MS // 4),),
            step_ns=step * MS,
            rank=rank,
            first_pid=100 + 100 * rank,
            builder=builder,
        )
    return str(builder.end())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("balance") / "run", 20, 60)


def test_balance_writes_what_lotus_run_reads(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "balance.json"
    assert main(["balance", run, "-o", str(written)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Balance: ImageFolder at train.py:31" in out
    assert f"lotus run --settings {written} -- torchrun" in out
    assert "was not traced" in out
    made = share_plan.read(written)
    assert made.batch_sizes == (12, 4)
    assert made.loader is not None
    assert (made.loader.dataset, made.loader.sampler) == ("ImageFolder", "RandomSampler")
    assert main(["balance", run, "--strategy", "bno", "--link", "0-1=50us", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["strategy"] == "bno"
    assert document["weights"][1]["K"] == pytest.approx(0.25)
    assert document["quantities"]["NL"] == "as given"
    assert main(["balance", run]) == 0
    assert "-o balance.json" in capsys.readouterr().out


def test_stragglers_are_twice_as_slow_unless_it_was_said() -> None:
    assert stragglers(None, None, None) == Stragglers()
    assert stragglers(3, None, None) == Stragglers(3, 0.0, 2.0)
    assert stragglers(None, 0.1, 4.0) == Stragglers(0, 0.1, 4.0)
    with pytest.raises(LotusError, match="--slower needs --stragglers"):
        stragglers(0, None, 4.0)


def test_whatif_with_ranks(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = tmp_path / "b.json"
    share_plan.write(split, SharePlan((12, 4), "lotus"))
    assert main(["whatif", run, "--ranks", "2", "--plan", str(split), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["whatif"]["step_s"] == pytest.approx(30e-3, rel=0.01)
    words = ["--ranks", "8", "--stragglers", "1", "--slower", "3", "--workers", "1", "--steps", "9"]
    assert main(["whatif", recorded(tmp_path / "run", 58, 60), *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "last today rank 1 in 100%; what if rank 7 in 100%" in out
    # Ranks that do not wait for each other are not simulated as they were.
    assert main(["whatif", run, *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "last today rank 1 in 100% what if this run cannot be predicted" in out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["whatif", "--stragglers", "1"], "--stragglers is for --ranks N only"),
        (["whatif", "--ranks", "4", "--cores", "2"], "--cores means nothing with --ranks"),
        (["whatif", "--ranks", "4", "--speedup", "a=2"], "--speedup means nothing"),
        (["whatif", "--ranks", "4", "--slower", "2"], "--slower needs --stragglers"),
        (["whatif", "--ranks", "4", "--plan", "none.json"], "cannot read none.json"),
        (["balance", "-o", "/none/b.json"], "cannot write /none/b.json"),
        (["balance", "--also", "/none"], "there is no run at /none"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: str, arguments: list[str], error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([arguments[0], run, *arguments[1:]]) != 0
    assert error in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--most", "0=0"], ["--most", "x"], ["--link", "0-1=5"]])
def test_a_wrong_option_is_a_usage_error(run: str, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["balance", run, *words])
    assert caught.value.code == 2
