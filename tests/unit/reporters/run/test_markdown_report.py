"""The report as Markdown: the verdict, tables, and no name that Markdown would read as its own."""

import re

from lotus.analysis.summary import Summary, summarise
from lotus.reporters.run.markdown_report import markdown
from tests.unit.simulated import Plan


def summary(**plan: object) -> Summary:
    run = Plan(**({"operations": {"Slow": 20.0}, "batches": 100} | plan)).run()  # type: ignore[arg-type]
    run.manifest |= {"command": ["python", "train.py"], "exit_code": 0}
    return summarise(run)


def test_the_verdict_its_causes_and_what_to_try_are_there() -> None:
    text = markdown(summary(workers=1))
    assert text.startswith("**HIGHLY INPUT-BOUND**: The loop waits for data")
    for words in ("First cause: **Slow**", "Next step: ", "times as fast", "samples/s"):
        assert words in text
    assert "```\nlotus tune -- python train.py\n```" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert any(re.match(r"\| Slow \| \d", row) for row in rows)
    assert all(row.endswith("|") for row in rows)


def test_a_share_of_the_run_is_told_from_those_of_the_loop() -> None:
    run = Plan(epochs=3, operations={"Slow": 1.0}, step=5.0).run()
    run.epochs[["start_ns", "end_ns"]] += run.epochs[["epoch"]].to_numpy() * 20e9
    run.waits["start_ns"] += run.waits["epoch"] * 20e9
    run.manifest["start_ns"] = int(run.epochs["start_ns"].min() - 1e9)
    run.manifest["end_ns"] = int(run.epochs["end_ns"].max() + 1e9)
    text = markdown(summarise(run))
    assert re.search(r"^\| cause \(.+\) \| of the loop \|$", text, re.MULTILINE)
    assert re.search(r"^\| the time between the loops \| \d+% of the run \|$", text, re.MULTILINE)


def test_names_are_text_and_call_nobody() -> None:
    name = "Crop|<img src=x>`*@user* [x](http://evil) #12"
    text = markdown(summary(operations={name: 20.0}))
    assert "@user" not in text
    assert "#12" not in text
    assert not re.search(r"(?<!\\)<img", text)
    assert r"Crop\|" in text


def test_a_run_without_a_loader_says_so() -> None:
    empty = Plan(batches=0).run()
    for name in ("batches", "waits", "epochs"):
        setattr(empty, name, getattr(empty, name).iloc[:0])
    assert markdown(summarise(empty)).startswith("**No DataLoader was iterated")
