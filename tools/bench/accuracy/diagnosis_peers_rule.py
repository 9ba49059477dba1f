"""The rule by which diagnosis_peers.py judges what a tool says of a program.

- side: whether a tool knows if the loop waits for its input. A planted cause is either of the input
  or of the step or of code outside of the loops (`NOT_INPUT`). A tool is right if it calls programs
  with causes of the input input-bound, and no others, healthy ones included. torch.profiler's table
  has only numbers: it counts as "input-bound" if the loader's lines have 10 % of the steps or more,
  which is TraceML's limit.
- named: what the tool says of the cause contains the label's `names` or, if the label has none, one
  of the words for its kinds (`WORDS`). If only the next step contains it, it is hinted.
- step, refused: whether the tool proposes a next step, and whether that contains what the label's
  `never` forbids. "Increase workers", and more workers than the program has, are read as the labels
  write them.
"""

import re
from collections.abc import Mapping
from typing import Any

NOT_INPUT = {"consumer", "outside", "step-threads", "step-delay", "interpreter"}
INPUT_BOUND = re.compile(r"(?i)input[- ]bound|input straggler|input pipeline is")
LOADER, STEPS = "enumerate(DataLoader)", "ProfilerStep*"
LOADER_SHARE = 10.0  # percent of the steps
WORDS = {
    "collate": r"collat",
    "consumer": r"in the step|training step|compute[- ]bound|residual",
    "dataset": r"data ?set|__getitem__|pre-?processing",
    "fetch": r"\bfetch|__getitem__|pre-?processing",
    "index": r"\bindices|index queue",
    "latency": r"latency|network|server|storage|\bi/o\b|blocked",
    "main-process": r"sampler|main process",
    "operation": r"transform",
    "outside": r"outside|checkpoint|logging|validation",
    "prefetch": r"prefetch",
    "send": r"\bsen[dt]|shared memory|transfer|pickl|serializ|\bipc\b|inter-process",
    "shared-limit": r"bandwidth|throughput|rate limit|network|server|storage|\bi/o\b",
    "shared-lock": r"\block",
    "slow-samples": r"slow(est)? samples?|a few samples|outlier|jitter|straggler",
    "slow-worker": r"(one|slow|single) worker|straggler",
    "stalls": r"storage|latency|network|\block|server|data ?base|\bi/o\b|blocked",
    "start-up": r"start-?up|spawn|persistent_workers|worker creation",
    "step-threads": r"num_threads|threads",
    "worker-threads": r"num_threads|threads",
}


def of_input(label: Mapping[str, Any]) -> bool:
    """Return True if the planted cause slows the input."""
    return not label["healthy"] and not NOT_INPUT & set(label["kinds"])


def share_of_loader(table: str) -> float:
    """Percent of the steps that the lines of a profiler's table give to loaders."""
    totals = {LOADER: 0.0, STEPS: 0.0}
    for line in table.splitlines():
        cells = re.split(r" {2,}", line.strip())
        for name in totals:
            if cells[0].startswith(name):
                totals[name] += float(cells[3].rstrip("%"))
    return 100 * totals[LOADER] / totals[STEPS] if totals[STEPS] else 0.0


def accused(output: str) -> bool:
    """Return True if a tool calls the program input-bound."""
    if STEPS in output:
        return share_of_loader(output) >= LOADER_SHARE
    return bool(INPUT_BOUND.search(output))


def as_labels_write(step: str, workers: int) -> str:
    """Return a next step for a program with so many workers, in the words of the labels."""

    def setting(match: re.Match[str]) -> str:
        requested = int(match[1])
        prefix = "more workers: " if requested > workers else ""
        return f"{prefix}num_workers={requested}" if requested != workers else ""

    step = re.sub(r"(?i)\b(increase|raise|add)( the number of)? workers", "more workers", step)
    return re.sub(r"\bworkers=(\d+)", setting, step)


def judged(label: Mapping[str, Any], output: str, step: str, workers: int) -> dict[str, bool]:
    """Return the judgement on what a tool says of the cause and as the next step."""
    patterns = [label["names"]] if label["names"] else [WORDS[kind] for kind in label["kinds"]]

    def names_it(words: str) -> bool:
        found = any(re.search(pattern, words, re.IGNORECASE) for pattern in patterns)
        return found and not label["healthy"]

    written = as_labels_write(step, workers)
    return {
        "side": accused(output) == of_input(label),
        "named": names_it(output),
        "hinted": names_it(step) and not names_it(output),
        "step": bool(step),
        "refused": any(re.search(words, written) for words in label["never"]),
    }
