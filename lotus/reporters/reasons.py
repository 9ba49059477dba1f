"""Why a cause is believed: its evidence in a sentence."""

import math

from lotus.analysis import causes as kinds
from lotus.analysis.verdict import Cause
from lotus.reporters.words import amount, duration, plural, share, size


def reason(cause: Cause) -> str:
    """One sentence with the numbers behind a cause; "" where its share says all."""
    evidence = _Evidence(cause.evidence)
    if cause.kind in (kinds.OPERATION, kinds.DATASET, kinds.COLLATE, kinds.FETCH):
        return _work(evidence)
    if cause.kind == kinds.SLOW_SAMPLES and evidence.has("slowest_ns"):
        text = (
            f"The slowest took {duration(evidence['slowest_ns'])}, a typical one of its worker "
            f"{duration(evidence['typical_ns'])}"
        )
        return text + "; the batches after it wait their turn."
    if cause.kind == kinds.SLOW_WORKER and evidence.has("own_ns"):
        return (
            f"A typical sample takes {duration(evidence['own_ns'])} in worker "
            f"{evidence['worker']:.0f} and {duration(evidence['others_ns'])} in the others."
        )
    if cause.kind == kinds.STARTUP:
        parts = (
            ("iter_ns", "in iter()"),
            ("workers_ns", "until the workers were ready"),
            ("first_batch_ns", "for first batches"),
            ("first_send_ns", "for their sending"),
        )
        spent = [f"{duration(evidence[key])} {words}" for key, words in parts if evidence[key] > 0]
        return f"In {plural(evidence['epochs'], 'epoch')}: {', '.join(spent)}."
    if cause.kind == kinds.SEND and evidence.has("mean_pickle_ns"):
        text = (
            f"Per batch: pickling {duration(evidence['mean_pickle_ns'])}, lock "
            f"{duration(evidence['mean_lock_ns'])}, writing {duration(evidence['mean_write_ns'])}, "
            f"the main process's reading and unpickling {duration(evidence['mean_receive_ns'])}"
        )
        if evidence.has("mean_pipe_bytes"):
            text += f"; {size(evidence['mean_pipe_bytes'])} through the pipe"
        return text + "."
    if cause.kind == kinds.COLD_FILES:
        on_cpu = evidence["cpu_ns"] / evidence["fetch_ns"] if evidence["fetch_ns"] else math.nan
        return (
            f"{size(evidence['read_bytes'])} came from storage, with "
            f"{amount(evidence['major_faults'])} major faults; the fetches were on a CPU "
            f"{share(on_cpu)} of their time."
        )
    if cause.kind == kinds.UNSEEN and evidence["broken_off_ns"] > 0:
        waited = duration(evidence["broken_off_ns"])
        return f"{waited} of waiting ended before the batch was there, by an error or a signal."
    return ""


def _work(evidence: "_Evidence") -> str:
    if not evidence.has("fetch_share"):
        return ""
    text = f"It is {share(evidence['fetch_share'])} of the time in which batches are made"
    if evidence.has("waiting_share") and evidence["waiting_share"] > 0.1:
        text += f", off the CPU for at least {share(evidence['waiting_share'])} of it"
    return text + "."


class _Evidence:
    """Evidence by name; NaN for what is not there."""

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> float:
        return self._values.get(name, math.nan)

    def has(self, name: str) -> bool:
        return not math.isnan(self[name])
