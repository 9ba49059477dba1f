"""Making batches: operations, the data set's own code, collate, and the rest of the fetch."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from lotus.analysis.batches import collection_cost
from lotus.analysis.batches.components import off_cpu
from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.common.random_names import is_random
from lotus.analysis.observations.looks import LEAST_LOOKS, LOCAL_SOCKET, LOCK, SHARED_LOCK, Looks
from lotus.analysis.observations.own_code import HotFunction, is_of_program, of_program
from lotus.analysis.samples.delayed_acks import (
    DELAYED_FACTS,
    DELAYED_SHARE,
    MOST_DELAYED,
    delayed_share,
)
from lotus.analysis.samples.mutual_slowing import (
    SHARES_LIMIT,
    SHARES_NONE,
    SLOWING_FACTS,
    mutual_slowing,
)
from lotus.analysis.samples.shared_pace import shared_pace_ns
from lotus.analysis.verdict.advice.advice import (
    NAMED,
    PROGRAM,
    Advice,
    more_workers,
    so_many_workers,
)
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE_NOT_WORKERS, Remedy
from lotus.analysis.verdict.advice.worker_advice import worker_advice
from lotus.analysis.verdict.causes.cause_row import OF_LOST_STEPS, CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.garbage import (
    GARBAGE_FACTS,
    MAKING,
    against_collections,
    collections_reason,
    of_collections,
)
from lotus.analysis.verdict.causes.making.blocked_kinds import (
    WAITING,
    as_blocked,
    is_off_cpu,
    starts_programs,
)
from lotus.analysis.verdict.causes.making.component_looks import looks_of, place_of
from lotus.analysis.verdict.causes.making.kernel_work import (
    KERNEL_FACTS,
    against_new_memory,
    kernel_reason,
    of_making,
)
from lotus.analysis.verdict.causes.making.shared_limit import (
    PACED,
    against_shared_limit,
    takes_turns,
)
from lotus.analysis.verdict.causes.making.storage import against_reading
from lotus.analysis.verdict.causes.making.waiting import (
    OVERLAPS,
    READING,
    REASONS,
    WAITING_FACTS,
    fact_of,
    look_evidence,
    looked,
    read_again,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import amount, duration, operation_name, share

_CHAIN = 4  # innermost calls that are named
_SEEN = 0.1  # of the observations: less is not mentioned
_FAR_MORE, _NEARLY_ALL = 4.0, 0.8
_OF_NETWORK = ("socket", "events", LOCAL_SOCKET)
_MOST_OF_FETCH = 0.5
WORK_FACTS = (
    {
        "fetch_share": "Share of the fetches' time, 0 to 1.",
        "total_ns": "Its time in all workers, nanoseconds.",
        "shared_pace_ns": "From a sample to the next one of any worker, where even, nanoseconds.",
    }
    | SLOWING_FACTS
    | DELAYED_FACTS
    | GARBAGE_FACTS
    | KERNEL_FACTS
    | WAITING_FACTS
    | OF_LOST_STEPS
)


def _components(kind: str) -> Callable[[Ledger], Iterable[Charge]]:
    """Charge what is left of the components of one kind, each by itself."""

    def charges(ledger: Ledger) -> Iterable[Charge]:
        parts, fetch = ledger.batch_making.components, total(ledger.batch_making.components.fetch)
        for column, (name, its_kind) in enumerate(zip(parts.names, parts.kinds, strict=True)):
            if its_kind == kind:
                made = total(parts.parts[:, column])
                looks = looks_of(ledger, column)
                evidence = {
                    "fetch_share": ratio(made, fetch),
                    "waiting_share": _waiting_share(ledger, column, looks),
                    "total_ns": made,
                    **look_evidence(looks),
                }
                if not evidence["waiting_share"] > WAITING:
                    evidence |= of_making(ledger.scope, evidence["fetch_share"])
                    if evidence["fetch_share"] >= _MOST_OF_FETCH:
                        evidence |= of_collections(collection_cost.of_fetches(ledger.scope))
                if looks.reason in (*PACED, *READING) and evidence["fetch_share"] >= _MOST_OF_FETCH:
                    evidence["shared_pace_ns"] = shared_pace_ns(ledger.scope)
                    evidence["mutual_slowing"] = mutual_slowing(ledger.scope)
                    evidence[DELAYED_SHARE] = delayed_share(ledger.scope)
                ns = ledger.take_component(column)
                own = max(1.0 - ledger.delay_share, 0.01)
                charge = Charge(
                    kind,
                    name,
                    ns,
                    evidence,
                    delay_ns=ns * ledger.delay_share / own,
                    at_once=_at_once(ledger, looks),
                    place=place_of(ledger, column, looks, looks.reason),
                )
                yield as_blocked(charge, ledger.scope.num_workers, ledger.use)

    return charges


def _at_once(ledger: Ledger, looks: Looks) -> float:
    """Return how many workers could do its work side by side but for a shared lock; else NaN."""
    return float(ledger.scope.num_workers) if looks.reason == SHARED_LOCK else math.nan


def _waiting_share(ledger: Ledger, column: int, looks: Looks) -> float:
    """Return the share of a component's time in which it waited.

    By observations if there are enough, else by its CPU time; a lower bound if only the CPU time of
    its batches is known. NaN if it is not known: time off the CPU may be waiting for one.
    """
    parts, batches = ledger.batch_making.components, ledger.scope.batches
    if looks.are_enough:
        return looks.blocked_share
    if ledger.batch_making.crowded and np.isnan(float_column(batches, "run_delay_ns")).all():
        return float("nan")
    if parts.kinds[column] == OPERATION.kind and not np.isnan(parts.operations.cpu_ns[column]):
        took = float(parts.operations.took_ns[column])
        return 1.0 - min(ratio(float(parts.operations.cpu_ns[column]), took), 1.0)
    if np.isnan(float_column(batches, "cpu_ns")).all():
        return float("nan")
    off = np.maximum(off_cpu(batches, parts.fetch) - ledger.batch_making.held, 0.0)
    others = parts.fetch - parts.parts[:, column]
    return ratio(total(np.maximum(off - others, 0.0)), total(parts.parts[:, column]))


def work_reason(evidence: Evidence) -> str:
    """Return a sentence on the work: its part of the making of batches, and what blocks it."""
    if not evidence.has("fetch_share"):
        return ""
    text = f"It takes {share(evidence['fetch_share'])} of the time in which batches are made"
    if evidence.has("waiting_share") and evidence["waiting_share"] > 0.1:
        least = "" if evidence["looks"] >= LEAST_LOOKS else "at least "
        text += f", off the CPU for {least}{share(evidence['waiting_share'])} of that"
    parts = [(evidence[fact_of(reason)], words) for reason, (words, _) in REASONS.items()]
    parts = sorted((part for part in parts if part[0] >= _SEEN), reverse=True)[:2]
    if parts and evidence["looks"] >= LEAST_LOOKS:
        seen = ", ".join(f"{share(part)} found that it {words}" for part, words in parts)
        text += f"; of {amount(evidence['looks'])} observations, {seen}"
    if evidence.has("shared_pace_ns"):
        text += (
            f". Samples arrived at even intervals of {duration(evidence['shared_pace_ns'])}, "
            "whichever worker asked"
        )
    if evidence["mutual_slowing"] >= SHARES_LIMIT:
        text += (
            ". With half as many made at a time, each sample took "
            f"{share(1 - 2 ** -evidence['mutual_slowing'])} less"
        )
    elif evidence["mutual_slowing"] <= SHARES_NONE:
        text += ". Samples took as long when fewer were made at a time"
    sentences = (f"{text}.", kernel_reason(evidence), collections_reason(evidence, MAKING))
    return " ".join(filter(None, sentences))


def _waits(charge: Charge, circumstances: Circumstances) -> bool:
    """Return True if it waits by itself, and not because others have the cores."""
    return (
        is_off_cpu(charge)
        and circumstances.shared <= WAITING
        and not starts_programs(charge, circumstances.use)
    )


def _against_work(charge: Charge, circumstances: Circumstances, look: str = "") -> Advice:
    against = (
        against_shared_limit(charge, circumstances)
        or _against_waiting(charge, circumstances)
        or _against_computing(charge, circumstances)
    )
    return against.before(look)


def _against_waiting(charge: Charge, circumstances: Circumstances) -> Advice | None:
    """Return advice if it waits; None if it computes."""
    reason = looked(charge).reason
    if starts_programs(charge, circumstances.use):
        return (
            more_workers(circumstances)
            .after(
                "It starts a program for each sample or batch: do its work in the worker with a "
                "library, for many samples at a time, or once, ahead of time. "
            )
            .or_code()
        )
    if not is_off_cpu(charge):
        return None
    if not _waits(charge, circumstances):
        return Advice(
            "It was off the CPU while other programs used the cores, and more workers will not "
            "help: measure again when the cores are free.",
            Remedy(changes={"num_workers": "not more"}),
        )
    if reason in ("child", "pipe") and circumstances.use.all_used:
        return Advice(
            "It waits for another process while all cores are in use: if that process computes, "
            "more workers will not help. Do its work in the worker with a library, or once, ahead "
            "of time.",
            CODE_NOT_WORKERS,
        )
    words, helps = REASONS.get(reason, ("waits (network, lock, sleep)", OVERLAPS))
    slowing = Evidence(charge.evidence)["mutual_slowing"]
    if reason in READING:
        return against_reading(f"It {words}", slowing, circumstances)
    if slowing <= SHARES_NONE:
        helps = OVERLAPS
    computes = reason == LOCK and circumstances.use.fetch.crowded  # what it waits for
    workers = more_workers(circumstances, waits=not computes, steady=reason != LOCAL_SOCKET)
    delayed = Evidence(charge.evidence)[DELAYED_SHARE]
    if reason in _OF_NETWORK and delayed >= MOST_DELAYED:
        return workers.after(
            f"{share(delayed)} of the samples take some 40 ms, for which Linux delays the "
            "acknowledgement of a packet: where client or server sends a message in several small "
            "pieces, set TCP_NODELAY there, or send it at once. Otherwise, it "
            f"{words}: {helps}"
        ).or_code()
    advice, again = workers.after(f"It {words}: {helps}"), read_again(reason, circumstances)
    return advice.before(again).or_code() if again else advice


def _against_computing(charge: Charge, circumstances: Circumstances) -> Advice:
    advised, place = worker_advice(circumstances), _own_place(charge, circumstances)
    workers, kept = so_many_workers(advised, circumstances), against_new_memory(charge)
    kept = kept.after(against_collections(Evidence(charge.evidence), MAKING, circumstances))
    it = place or (DATASET.title if charge.kind == DATASET.kind else "it")
    it = operation_name(charge.name) if charge.kind == OPERATION.kind else it
    if not advised.advised or _dwarfs_the_cores(charge, circumstances):
        ahead = _ahead(charge, circumstances)
        first = workers.after(f"{kept.text}Make {NAMED} cheaper{ahead} ")
        first = first.about(it).or_code(place)
        tried = {} if workers.remedy.setting else kept.remedy.environment
        return replace(first, remedy=replace(first.remedy, environment=tried))
    cheaper = f" Or make {NAMED} cheaper{_ahead(charge, circumstances)}"
    return workers.after(kept.text).before(cheaper).about(it).or_code(place)


def _own_place(charge: Charge, circumstances: Circumstances) -> str:
    """Return the data set's code that most of its stack samples were in; "": not known."""
    of_dataset = charge.kind == DATASET.kind and circumstances.hot
    return str(of_program(circumstances.hot)) if of_dataset else ""


def _ahead(charge: Charge, circumstances: Circumstances) -> str:
    """Return advice on doing it after a crop, or once, which does not suit what is random."""
    if charge.kind != OPERATION.kind:
        return ", or do it once, ahead of time."
    if crop := circumstances.crops.get(charge.name, ""):
        return (
            f", or put it behind {operation_name(crop)}, where less is left of a sample, if that "
            "serves as well: `lotus advise` measures it for torchvision's changes of colour."
        )
    if is_random(charge.name):
        return (
            ". Its name suggests that it is random: done once, ahead of time, it would be the same "
            "in each epoch."
        )
    return ", or do it once, ahead of time."


def _dwarfs_the_cores(charge: Charge, circumstances: Circumstances) -> bool:
    """Return True if doing without it gains far more than all cores could."""
    part = charge.evidence.get("fetch_share", math.nan)
    return part * circumstances.needed > _FAR_MORE * circumstances.cores and part >= _NEARLY_ALL


def _waiting_words(charge: Charge, circumstances: Circumstances) -> str:
    """Return what it does instead of computing; "" if it computes."""
    reason = looked(charge).reason
    if takes_turns(reason, circumstances.workers) or reason == LOCAL_SOCKET:
        words = REASONS[reason][0]  # whoever answers, or who has the lock, may compute meanwhile
    elif starts_programs(charge, circumstances.use):
        words = "waits for programs that it starts"
    elif _waits(charge, circumstances):
        words = REASONS[reason][0] if reason in REASONS else "waits"
    else:
        return ""
    return f"{words}, not computing" if is_off_cpu(charge) else words


def _operation_title(charge: Charge, circumstances: Circumstances) -> str:
    words, inner = _waiting_words(charge, circumstances), circumstances.inner.get(charge.name, "")
    name = operation_name(charge.name)
    name += f", most of it {operation_name(inner)}" if inner else ""
    return name + (f" ({words})" if words else "")


OPERATION = CauseRow(
    kind="operation",
    title="an operation",
    full_title=_operation_title,
    charges=_components("operation"),
    facts=WORK_FACTS,
    reason=work_reason,
    advice=_against_work,
)


def _dataset_title(charge: Charge, circumstances: Circumstances) -> str:
    method = "next" if circumstances.iterable else "__getitem__"
    text = f"the data set's own code ({method}, outside its operations)"
    if circumstances.hot:
        text = f"the data set's own code: {of_program(circumstances.hot)}"
    words = _waiting_words(charge, circumstances)
    return text + (f", which {words}" if words else "")


def _against_dataset(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.level == "sample":
        return _record_operations(circumstances)
    first = f"{circumstances.stacks_fix}; then " if circumstances.stacks_fix else ""
    look = f" To see its functions: {first}lotus trace --py-spy -- {PROGRAM}, then lotus map."
    if circumstances.hot:
        own = of_program(circumstances.hot)
        *callers, last = _shown(circumstances.hot)
        shown = [hot.at_line if hot == own else str(hot) for hot in callers]
        chain = " > ".join([*shown, last.quoted if last == own else str(last)])
        look = f" {last.share:.0%} of its stack samples were in {chain}."
    return _against_work(charge, circumstances, look + _whole_batches(circumstances))


def _whole_batches(circumstances: Circumstances) -> str:
    """Return how to take a batch from tensors at once, where it is taken sample by sample."""
    if circumstances.dataset != "TensorDataset":
        return ""
    return (
        " A TensorDataset is indexed once for each sample and its samples are then stacked: take "
        "whole batches from it with sampler=BatchSampler(RandomSampler(data), batch_size, "
        "drop_last=False), batch_size=None (SequentialSampler without shuffle)."
    )


def _shown(chain: list[HotFunction]) -> list[HotFunction]:
    """Return the innermost calls, preceded by a function of the program if they have none."""
    # Of data sets within each other, as of concatenated ones, each is the same method.
    chain = [hot for hot, inner in zip(chain, [*chain[1:], None], strict=True) if hot != inner]
    innermost = chain[-_CHAIN:]
    if of_program(innermost) == of_program(chain):
        return innermost
    return [of_program(chain), *chain[1 - _CHAIN :]]


def _record_operations(circumstances: Circumstances) -> Advice:
    return more_workers(circumstances).after(
        "Record with --level op to see which operation it is. "
    )


DATASET = CauseRow(
    kind="dataset",
    title="the data set's own code",
    full_title=_dataset_title,
    charges=_components("dataset"),
    facts=WORK_FACTS,
    reason=work_reason,
    advice=_against_dataset,
)


def _collate_title(charge: Charge, circumstances: Circumstances) -> str:
    words, hot = _waiting_words(charge, circumstances), _hot_in_collate(circumstances)
    text = "collate: putting samples together into a batch"
    if hot:
        text += f", most of it in {hot}"
    return text + (f", which {words}" if words else "")


def _hot_in_collate(circumstances: Circumstances) -> HotFunction | None:
    """Return the program's own function in which collate spends its time; None: not known."""
    hot = of_program(circumstances.hot_in_collate) if circumstances.hot_in_collate else None
    return hot if hot and is_of_program(hot) else None


def _against_collate(charge: Charge, circumstances: Circumstances) -> Advice:
    if _waiting_words(charge, circumstances):
        return _against_work(charge, circumstances)
    hot = _hot_in_collate(circumstances)
    seen = f" {hot.share:.0%} of its stack samples were in {hot.quoted}." if hot else ""
    if not circumstances.hot_in_collate and circumstances.stacks_fix:
        seen = f" To see its functions: {circumstances.stacks_fix}; then trace again."
    cheaper = (
        f"Make collate_fn cheaper.{seen} Stack tensors once instead of copying or padding in "
        "Python, and do once, ahead of time, what is the same in each epoch. "
    )
    if not hot and circumstances.dataset == "TensorDataset":
        cheaper = f"{_whole_batches(circumstances).strip()} "
    cheaper = against_collections(Evidence(charge.evidence), MAKING, circumstances) + cheaper
    return more_workers(circumstances).after(cheaper).or_code(hot or "")


COLLATE = CauseRow(
    kind="collate",
    title="collate",
    full_title=_collate_title,
    charges=_components("collate"),
    facts=WORK_FACTS,
    reason=work_reason,
    advice=_against_collate,
)


def _fetch_title(charge: Charge, circumstances: Circumstances) -> str:
    if circumstances.level == "batch":
        return "making the samples (not split at --level batch)"
    return "the rest of the fetch, outside samples and collate"


def _against_fetch(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.level == "batch":
        return _record_operations(circumstances)
    return _against_work(charge, circumstances)


FETCH = CauseRow(
    kind="fetch",
    title="the rest of the fetch",
    full_title=_fetch_title,
    charges=_components("fetch"),
    facts=WORK_FACTS,
    reason=work_reason,
    advice=_against_fetch,
)
