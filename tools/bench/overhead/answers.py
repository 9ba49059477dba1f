"""The questions that each tool answers, according to its output.

The first five questions are those of Table IV of the Lotus paper (IISWC 2024), for a DataLoader
with workers; the others are those that lotus adds, and that users ask a profiler. Each answer was
looked up in outputs recorded by comparison.py (image_classification, two workers); the line beside
it says where. `partly`: there is a sum instead of single values, or facts that are not connected.
"""

from collections.abc import Iterable, Mapping
from typing import Any

QUESTIONS = {
    "epoch": "how long each epoch took",
    "batch": "how long the preparing of each batch took, in a worker",
    "async": "which worker made which batch when, and when the main process took it",
    "wait": "how long the main process waited for each batch",
    "delay": "how long each finished batch lay until it was taken",
    "operation": "how long each operation took on each sample",
    "counters of an operation": "hardware counters of each operation",
    "counters of a function": "hardware counters of each C function, by operation",
}
PAPERS = 5  # so many of them are of the paper's table

STACKS = "its raw output is stacks and how often each was seen: no times, no batches"
MAIN = "its output has the main process only"
CLOCKS = "it reads no hardware counters"
Answers = dict[str, tuple[str, str]]


def _rest(answers: Answers, why: str) -> Answers:
    return {question: answers.get(question, ("no", why)) for question in QUESTIONS}


_LOTUS: Answers = {
    "epoch": ("yes", "a row of `epochs` each: start_ns, end_ns, batches"),
    "batch": ("yes", "a row of `batches` each: fetch_ns, collate_ns, worker, pid"),
    "async": ("yes", "`batches`: worker, put_ns, arrival_ns, taken_ns of each, on one clock"),
    "wait": ("yes", "`batches`: wait_ns of each"),
    "delay": ("yes", "`batches`: delay_ns of each"),
    "operation": ("yes", "a row of `ops` for each sample and operation: duration_ns"),
}
_STACKS_PARTLY = "samples of frames by the name of the transform, of all calls together"

ANSWERS: dict[str, Answers] = {
    "lotus": _rest(_LOTUS, "only with --counters or --perf"),
    "lotus --counters": _rest(
        {**_LOTUS, "counters of an operation": ("yes", "columns of `ops`: each event's count")},
        "exact counts are of operations; functions need --perf",
    ),
    "lotus --perf": _rest(
        {
            **_LOTUS,
            "counters of an operation": ("partly", "`lotus map`: by the samples within it"),
            "counters of a function": ("yes", "`lotus map`: samples by function and operation"),
        },
        "",
    ),
    "py-spy": _rest(
        {
            "wait": ("partly", "samples of `_next_data`, of all batches together"),
            "operation": ("partly", _STACKS_PARTLY),
        },
        STACKS,
    ),
    "austin": _rest(
        {
            "wait": ("partly", "time in `_next_data`, to be summed up over its stacks"),
            "operation": ("partly", _STACKS_PARTLY),
        },
        "its output is stacks in order, each with how long it was: no batches",
    ),
    "viztracer": _rest(
        {
            "epoch": ("partly", "`_worker_loop` of each worker; an epoch has no number"),
            "batch": ("yes", "an event `_MapDatasetFetcher.fetch` each, in the worker's process"),
            "async": ("partly", "all processes on one clock, but nothing says which batch it is"),
            "wait": ("yes", "an event `_next_data` each"),
            "operation": ("yes", "an event `RandomResizedCrop.forward` each (512 of 512 images)"),
        },
        CLOCKS,
    ),
    "scalene": _rest(
        {
            "wait": ("partly", "the line `for ... in enumerate(loader)` has a share of the time"),
            "operation": ("partly", "lines of the user's own classes, not of torchvision's"),
        },
        "its output is shares by line: no times, no batches, workers not told apart",
    ),
    "torch.profiler": _rest(
        {"wait": ("yes", "an event `enumerate(DataLoader)#...__next__` each, with `dur`")}, MAIN
    ),
    "traceml": _rest(
        {"wait": ("yes", "`dataloader_next` of each step; its summary gives Input Wait")}, MAIN
    ),
    "cProfile": _rest(
        {"wait": ("partly", "calls of `_next_data` and their time, of all together")}, MAIN
    ),
}  # fmt: skip
for _name, _answers in ANSWERS.items():
    if not _name.startswith("lotus"):
        _answers["counters of an operation"] = _answers["counters of a function"] = ("no", CLOCKS)
ANSWERS["viztracer"]["delay"] = ("no", "nothing joins a fetch with the taking of its batch")


def answers_of(tool: str, conditions: Mapping[str, Any]) -> Answers:
    """Return what a tool answered on the machine that `conditions` (overhead.json) describe."""
    if tool in conditions["not_run"]:
        return dict.fromkeys(QUESTIONS, ("not run", conditions["not_run"][tool]))
    answers = dict(ANSWERS[tool])
    if tool == "lotus --perf" and not conditions["instructions"]:
        clock = "of a clock: this machine has no hardware counters"
        answers["counters of an operation"] = ("no", f"`lotus map` has samples {clock}")
        answers["counters of a function"] = ("partly", f"`lotus map`: functions by samples {clock}")
    return answers


def short(tool: str, conditions: Mapping[str, Any]) -> str:
    """Return in a word how many questions of the paper a tool answers, and what else."""
    if tool not in ANSWERS:
        return ""
    answers = answers_of(tool, conditions)
    papers = list(QUESTIONS)[:PAPERS]
    yes = sum(answers[question][0] == "yes" for question in papers)
    further = [question for question in list(QUESTIONS)[PAPERS:] if answers[question][0] == "yes"]
    return f"{yes} of {PAPERS}" + "".join(f", {question}" for question in further)


def runs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return how each tool is run."""
    from tools.bench.overhead.compared_tools import BY_NAME

    return [(name, BY_NAME[name].about) for name in names if name in BY_NAME]


def text(conditions: Mapping[str, Any]) -> list[str]:
    """Return the matrix and its evidence for a terminal."""
    lines = ["Which questions an output answers (the first five: Table IV of the Lotus paper)"]
    lines += [f"  {question:26}{about}" for question, about in QUESTIONS.items()]
    for tool in ANSWERS:
        answers = answers_of(tool, conditions)
        lines += ["", f"  {tool}"]
        lines += [f"    {question:26}{said:8}{why}".rstrip()
                  for question, (said, why) in answers.items()]  # fmt: skip
    return lines


def markdown(conditions: Mapping[str, Any]) -> list[str]:
    """Return the matrix as a Markdown table."""
    lines = ["| | " + " | ".join(QUESTIONS) + " |", "|---|" + ":---:|" * len(QUESTIONS)]
    for tool in ANSWERS:
        answered = [answer for answer, _ in answers_of(tool, conditions).values()]
        lines.append(f"| {tool} | " + " | ".join(answered) + " |")
    return lines
