"""Transfers of batches from a worker to the loop, and of their indices to the worker."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.batches import collection_cost
from lotus.analysis.common.columns import float_column, mean, ratio
from lotus.analysis.observations.own_code import of_program
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import (
    CODE,
    FEWER_WORKERS,
    MORE_PREFETCH,
    PINNED,
    Remedy,
    no_workers,
    without_workers,
)
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, always
from lotus.analysis.verdict.causes.garbage import (
    GARBAGE_FACTS,
    RECEIVING,
    against_collections,
    collections_reason,
    of_collections,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import amount, duration, share, size


def _sending(ledger: Ledger) -> Iterable[Charge]:
    batches = ledger.scope.batches
    wanted = np.fmax(float_column(batches, "wait_start_ns"), float_column(batches, "ready_ns"))
    evidence = {
        **{f"mean_{name}_ns": mean(float_column(batches, f"{name}_ns")) for name in _STAGES},
        "mean_receive_ns": mean(np.maximum(float_column(batches, "arrival_ns") - wanted, 0.0)),
        "mean_pipe_bytes": mean(float_column(batches, "send_bytes")),
        "mean_batch_bytes": mean(float_column(batches, "bytes")),
        "mean_fetch_ns": mean(float_column(batches, "fetch_ns")),
        "making_over_receiving": ratio(
            mean(float_column(batches, "fetch_ns") - float_column(batches, "run_delay_ns")),
            ratio(ledger.received_cpu_ns, len(ledger.scope.waits)),
        ),
        **of_collections(collection_cost.of_receiving(ledger.scope)),
    }
    yield Charge(SENDING.kind, SENDING.title, ledger.take_sending(), evidence)


_SMALL_BATCH = 256 << 10  # bytes that take well under a millisecond to copy
# A tensor takes some 300 bytes of the pipe and 0.1 ms of pickling.
_MANY_PARTS_BYTES, _MANY_PARTS_NS = 4096, 2e6
_OBJECTS_BYTES = 256 << 10  # through the pipe: a thousand tensors, or objects that take longer
# Copying a byte of a tensor to shared memory takes less, also where others have the cores.
_COPY_NS = 2.0
# Python objects and arrays take far less for a byte, also where others have the cores.
_OF_TENSORS_NS = 100.0
_CLEARLY_LESS, _FAR_LESS = 0.25, 0.05
# Of the CPU time of receiving, which is the same whoever else has the cores: if making a batch
# takes less, the main process had better make it.
_LESS = 0.8
_STAGES = ("pickle", "lock", "write")


def _sending_reason(evidence: Evidence) -> str:
    if not evidence.has("mean_pickle_ns"):
        return ""
    text = (
        f"Per batch: pickling {duration(evidence['mean_pickle_ns'])}, waiting for the "
        f"queue's lock {duration(evidence['mean_lock_ns'])}, writing "
        f"{duration(evidence['mean_write_ns'])}, reading and unpickling in the main process "
        f"{duration(evidence['mean_receive_ns'])}"
    )
    if evidence.has("mean_pipe_bytes"):
        text += f"; {size(evidence['mean_pipe_bytes'])} through the pipe"
    return f"{text}. {collections_reason(evidence, RECEIVING)}".strip()


def against_views(circumstances: Circumstances) -> str:
    """Return advice against sending views; there are some."""
    tensors, storages = circumstances.views
    return (
        f"The {size(tensors)} of a batch's tensors are views of {size(storages)}, all of which a "
        "worker copies to shared memory to send it, and the main process frees in the training "
        "step. Return copies of what a sample needs: tensor.clone()."
    )


def against_values(circumstances: Circumstances) -> str:
    """Return advice on large batches of float64, or that are mostly padding; "" if they are not."""
    values, parts = circumstances.values, []
    if values.are_doubles:
        parts.append(
            f"{size(values.double_bytes)} of a batch are float64: float32 takes half of that, and "
            "uint8, as for pixels, an eighth, wherever a batch is made, copied or read."
        )
    if values.are_padded:
        most = "Over 99%" if values.zero_share > 0.99 else share(values.zero_share)
        parts.append(
            f"{most} of the values in the {size(values.tensor_bytes)} of a "
            "batch are 0: if that is padding, pad to the longest sample of the batch, not of the "
            "data set; if it is one-hot, send the numbers of the classes."
        )
    return " ".join(parts)


def _against_sending(charge: Charge, circumstances: Circumstances) -> Advice:
    collected = against_collections(Evidence(charge.evidence), RECEIVING, circumstances)
    return _against_sent(charge, circumstances).after(collected)


def _against_sent(charge: Charge, circumstances: Circumstances) -> Advice:
    """Return advice against what sending itself takes."""
    if circumstances.views[0] > 0:
        return Advice(against_views(circumstances), CODE)
    evidence = Evidence(charge.evidence)
    piped = (
        circumstances.pipe_bytes > 0.5 * circumstances.batch_bytes
        and circumstances.pipe_bytes > 65_536
    )
    if (piped and not _has_many_parts(charge)) or not circumstances.batch_bytes > 0:
        text = (
            "Batches go through a pipe as pickled Python objects or arrays: return torch tensors "
            "(they are passed in shared memory), fewer and larger ones, of a smaller dtype."
        )
        if not (_quicker_alone(charge, circumstances) and circumstances.batch_bytes < _SMALL_BATCH):
            return Advice(text)
        alone = f" Or do without workers: {_quicker_words(evidence)}."
        return Advice(text + alone, no_workers(circumstances).or_code())
    if _has_many_parts(charge):
        text = (
            f"Pickling takes longer than copying {size(evidence['mean_batch_bytes'])} does, as it "
            "does for many small tensors, also those that objects hold, each in its own shared "
            "memory. Concatenate them in collate_fn (torch.cat, with their lengths), or return "
            "numpy arrays, which are pickled directly."
        )
        return _or_without_sending(text, charge, circumstances)
    if circumstances.batch_bytes < _SMALL_BATCH:
        text = (
            "Batches are small: the time goes to communication between processes, not to copying. "
            "Use fewer and larger batches, or batches of fewer parts."
        )
        return _or_without_sending(text, charge, circumstances)
    if math.isinf(circumstances.batch_bytes):
        return _against_sending_what_was_sampled(charge, circumstances)
    values = against_values(circumstances)
    if not _is_of_tensors(evidence) and circumstances.pipe_bytes > _OBJECTS_BYTES:
        return Advice(
            f"{size(evidence['mean_pipe_bytes'])} of a batch are Python objects or arrays, which a "
            "worker pickles and the main process makes anew: leave out what the step does not use, "
            f"or return it as tensors. {values}".strip()
        )
    if values:
        return Advice(f"Make batches smaller. {values}", CODE)
    return Advice(
        "Make batches smaller: use uint8 instead of float32 and convert after loading, crop or "
        "reduce before collate. Each small tensor of a batch costs a file descriptor."
    )


def _against_sending_what_was_sampled(charge: Charge, circumstances: Circumstances) -> Advice:
    """Return advice on batches of which the sizes were not seen."""
    large = (
        "If batches are large, make them smaller: use uint8 instead of float32 and convert after "
        "loading, crop or reduce before collate."
    )
    small = "If they are small, or of many tensors, use larger batches of fewer tensors."
    if _sampled_quicker(charge, circumstances):
        less = share(charge.evidence["making_over_sending"])
        return Advice(
            f"Making all batches takes {less} of the time spent on sending them: with "
            f"num_workers=0 the main process makes them itself. {small}",
            FEWER_WORKERS,
        )
    return Advice(f"{large} {small} `lotus trace` measures their sizes.")


def _has_many_parts(charge: Charge) -> bool:
    """Return True if the bytes in the pipe and the pickling suggest many tensors (inferred)."""
    evidence = Evidence(charge.evidence)
    longer = evidence["mean_pickle_ns"] > _COPY_NS * evidence["mean_batch_bytes"]
    return (
        longer
        and _is_of_tensors(evidence)
        and evidence["mean_pipe_bytes"] >= _MANY_PARTS_BYTES
        and evidence["mean_pickle_ns"] >= _MANY_PARTS_NS
    )


def _is_of_tensors(evidence: Evidence) -> bool:
    """Return True if what goes through the pipe takes as long to pickle as tensors do."""
    return evidence["mean_pickle_ns"] > _OF_TENSORS_NS * evidence["mean_pipe_bytes"]


def _quicker_alone(charge: Charge, circumstances: Circumstances) -> bool:
    """Return True if the main process would make a batch in less time than receiving it takes.

    While other programs have the cores, receiving takes longer, but its CPU time does not. Not for
    samples that only workers can make.
    """
    if circumstances.workers_needed_at:
        return False
    evidence = Evidence(charge.evidence)
    if evidence["making_over_receiving"] < _LESS:
        return True
    least = _FAR_LESS if circumstances.use.rivals else _CLEARLY_LESS
    return evidence["mean_fetch_ns"] < least * evidence["mean_receive_ns"]


def _sampled_quicker(charge: Charge, circumstances: Circumstances) -> bool:
    """Return the same for a loop that was sampled, by sums over all batches."""
    if circumstances.workers_needed_at:
        return False
    least = _FAR_LESS if circumstances.use.rivals else _CLEARLY_LESS
    return Evidence(charge.evidence)["making_over_sending"] < least


def _or_without_sending(text: str, charge: Charge, circumstances: Circumstances) -> Advice:
    """Return advice on small batches, with that of using no workers where this is quicker."""
    if not _quicker_alone(charge, circumstances):
        return Advice(text)
    quicker = _quicker_words(Evidence(charge.evidence)).capitalize()
    text += f" {quicker}: set {without_workers(circumstances)}, which avoids sending."
    # The mean of all batches may be small where the median is not.
    small = circumstances.batch_bytes < _SMALL_BATCH or _has_many_parts(charge)
    return Advice(text, (no_workers(circumstances) if small else FEWER_WORKERS).or_code())


def _quicker_words(evidence: Evidence) -> str:
    made, received = (duration(evidence[f"mean_{name}_ns"]) for name in ("fetch", "receive"))
    return f"making a batch takes {made}, receiving it {received}"


def _sending_title(charge: Charge, circumstances: Circumstances) -> str:
    of = "batches of many small parts" if _has_many_parts(charge) else "batches"
    return f"sending {of} from the workers (pickle, pipe, unpickle)"


SENDING = CauseRow(
    kind="send",
    title="sending batches",
    full_title=_sending_title,
    charges=_sending,
    facts={
        "mean_pickle_ns": "Pickling of a batch, nanoseconds.",
        "mean_lock_ns": "Waiting for the pipe, of a batch, nanoseconds.",
        "mean_write_ns": "Writing of a batch, nanoseconds.",
        "mean_receive_ns": "From wanted and sent to arrived, of a batch, nanoseconds.",
        "mean_pipe_bytes": "Bytes of a batch through the pipe.",
        "mean_batch_bytes": "Bytes of a batch.",
        "mean_fetch_ns": "Making of a batch, nanoseconds.",
        "making_over_receiving": (
            "Making of a batch, without the time it had no core, over the main process's CPU time "
            "of receiving it."
        ),
        "making_over_sending": "Making of all batches over their sending; of a sampled run.",
        **GARBAGE_FACTS,
    },
    reason=_sending_reason,
    advice=_against_sending,
)


def _pinning(ledger: Ledger) -> Iterable[Charge]:
    yield Charge(PINNING.kind, PINNING.title, ledger.take_phase("pinning"))


PINNING = CauseRow(
    kind="pin",
    title="pinning memory",
    charges=_pinning,
    advice=always(
        "Pinning copies every batch: try pin_memory=False, or smaller batches (uint8).",
        Remedy({PINNED: False}, changes={"pin_memory": "off", "code": "other"}),
    ),
)


_OTHER_WORK = "work of the main process in next(), other than the sampler"


def _handover(ledger: Ledger) -> Iterable[Charge]:
    ns = ledger.take_phase("handover") + ledger.drawn_ns
    # What is taken after the batch has arrived, or before it is made, does not delay it further.
    evidence = {"drawn_ns": ledger.drawn_ns, "sampler_ns": min(ledger.sampler_ns, ns)}
    yield Charge(HANDOVER.kind, HANDOVER.title, ns, evidence)


def _draws_first(charge: Charge) -> bool:
    """Return True if most of it is the sampler's work before an epoch's first batch."""
    return charge.evidence.get("drawn_ns", 0.0) > charge.ns / 2


def _is_sampler(charge: Charge) -> bool | None:
    """Return whether most of it is the sampler's work; None: not known."""
    ns = charge.evidence.get("sampler_ns", math.nan)
    return None if math.isnan(ns) else ns > charge.ns / 2


def _handover_reason(evidence: Evidence) -> str:
    if not evidence["sampler_ns"] > 0:
        return ""
    before = evidence["drawn_ns"]
    of_it = f", {duration(before)} of it before the first batches" if before > 0 else ""
    return f"The sampler took {duration(evidence['sampler_ns'])}{of_it}."


# Samplers of torch that draw the indices of a whole epoch before they yield the first.
_DRAW_AT_ONCE = ("RandomSampler", "WeightedRandomSampler", "DistributedSampler")
_MANY = 200_000  # indices, which take some 20 ms


def _against_drawing_all(circumstances: Circumstances) -> Advice:
    name, weighted = circumstances.sampler, circumstances.sampler == "WeightedRandomSampler"
    if not weighted and 0 < circumstances.samples < _MANY:
        return Advice(
            f"{name} draws {amount(circumstances.samples)} indices at once, which is quick, but "
            "first asks the data set for its length: look at its __len__."
        )
    text = f"{name} draws the indices of a whole epoch before it yields the first"
    if circumstances.left:
        return Advice(
            f"{text}, and the program leaves each loop before its end: take all batches from one "
            "iterator, with `batches = iter(loader)` before the loops and `next(batches)` in them"
            f"{', or lower its num_samples' if weighted else ''}."
        )
    fewer = "lower its num_samples, or " if weighted else ""
    return Advice(
        f"{text}: {fewer}write a sampler that shuffles blocks of indices, and draws each block "
        "when it is needed."
    )


def _handover_title(charge: Charge, circumstances: Circumstances) -> str:
    if _draws_first(charge):
        title = "the sampler, in the main process, before the first batch of each epoch"
        return f"{title}: {circumstances.sampler}" if circumstances.sampler else title
    is_sampler = _is_sampler(charge)
    if circumstances.hot_in_sampler and is_sampler is not False:
        return f"the sampler, in the main process: {of_program(circumstances.hot_in_sampler)}"
    if is_sampler is None:
        return HANDOVER.title
    if not is_sampler:
        return _OTHER_WORK
    named = f": {circumstances.sampler}" if circumstances.sampler else ""
    return f"the sampler, in the main process{named}"


def _against_handover(charge: Charge, circumstances: Circumstances) -> Advice:
    if _draws_first(charge) and circumstances.sampler in _DRAW_AT_ONCE:
        return _against_drawing_all(circumstances)
    if _draws_first(charge):
        return Advice(
            "Look at what the sampler's __iter__ does before it yields its first index: read "
            "labels or lengths from a table that is built once, not from the samples, and draw "
            "indices with numpy or torch."
        )
    if _is_sampler(charge) is False:
        return Advice(
            "It is neither the sampler nor the making of a batch: look for other threads of the "
            "main process, which may hold the interpreter"
            + (
                ", and at pin_memory."
                if circumstances.pinned and not circumstances.workers
                else "."
            )
        )
    if circumstances.hot_in_sampler:
        hot = circumstances.hot_in_sampler[-1]
        return Advice(
            f"Make the sampler faster: {hot.share:.0%} of its stack samples were in {hot.quoted}. "
            "It runs in the main process: draw many indices at a time, ahead of the epoch, with "
            "numpy or torch.",
            CODE.or_code(of_program(circumstances.hot_in_sampler)),
        )
    look = "Look for a slow sampler or batch sampler: it runs in the main process."
    if circumstances.stacks_fix:
        look += f" To see its functions: {circumstances.stacks_fix}; then trace again."
    return Advice(look)


HANDOVER = CauseRow(
    kind="main-process",
    title="the sampler and other work of the main process in next()",
    full_title=_handover_title,
    charges=_handover,
    facts={
        "sampler_ns": "Time of the sampler, nanoseconds.",
        "drawn_ns": "Of it, before the first batches, nanoseconds.",
    },
    reason=_handover_reason,
    advice=_against_handover,
)


def _index(ledger: Ledger) -> Iterable[Charge]:
    yield Charge(INDEX.kind, INDEX.title, ledger.take_phase("index"))


def _against_index(charge: Charge, circumstances: Circumstances) -> Advice:
    return Advice(
        "The workers were idle while the loop waited: raise prefetch_factor "
        f"(now {circumstances.prefetch}) and look for a slow sampler.",
        MORE_PREFETCH.or_code(),
    )


INDEX = CauseRow(
    kind="index",
    title="the batch was not requested in time",
    charges=_index,
    advice=_against_index,
)
