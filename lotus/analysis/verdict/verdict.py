"""The verdict on a loader's loop and its causes, ranked, each with its evidence and advice.

Thresholds are those of tf.data's input-pipeline analysis: a wait of less than 5 % of the loop is
not input-bound, up to 20 % moderately, more than 20 % highly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.observations.places import BlockedPlace
from lotus.analysis.verdict import missing_cores, remarks
from lotus.analysis.verdict.account import Account, account
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances, circumstances_of
from lotus.analysis.verdict.advice.remedy import CODE, Remedy
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import (
    LOST_STEPS,
    STARTUP,
    STEP,
    WAITS,
    Charge,
    Evidence,
)
from lotus.analysis.verdict.causes.cores.crowded_workers import WORKER_THREADS
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.cores.step_delay import KEPT_PROCESSES
from lotus.analysis.verdict.causes.making.waiting import blocked_at
from lotus.analysis.verdict.causes.run.outside import OUTSIDE_PART
from lotus.analysis.verdict.causes.run.standing import STANDING
from lotus.analysis.verdict.causes.step.interpreter import INTERPRETER
from lotus.analysis.verdict.causes.step.training_step import TRACING, TRAINING_STEP
from lotus.analysis.verdict.causes.step.uneven_steps import LONG_STEPS
from lotus.analysis.verdict.causes.transport import SENDING
from lotus.analysis.verdict.parts_of_loop import (
    HIGH,
    MODERATE,
    PartsOfLoop,
    parts_of_loop,
    share_of,
    steady_wait_share,
    taken_ns,
)
from lotus.analysis.verdict.ranking import DEFECTS, ranked
from lotus.analysis.verdict.ruled_out import LITTLE, ruled_out
from lotus.analysis.verdict.summary_words import interval_words, summary, summary_of_hidden
from lotus.common.text.formatting import duration, plural, share

STANDSTILL = "standstill"  # kind of a program in which nothing moved
# Below this, the interval of the loop's own waits must lie above `MODERATE`, and so must these
# waits without the time that batches are on their way from the workers: 1 to 2 ms in any loader.
_NEAR_MODERATE = 0.10
_WAY_NS = 2e6  # a batch: what its way from a worker takes, whatever the loader
_BRIEF_NS = 2e9  # a start-up that comes once and takes less is no finding, however short the loop
# Causes of less than this share of the loop are not worth a line.
LEAST_SHARE = 0.002
_OF_CORES = (WORKER_THREADS.kind, AFFINITY.kind, OTHERS.kind, KEPT_PROCESSES.kind)
_WORTH = 0.02  # a gain of less is lost in what runs differ by
_NOT_TOLD_APART = 0.05  # of the replicates, in which the second cause is the largest
_LEAST_BATCHES = 3  # fewer say nothing of a loop
_ALL = 0.99  # of a loop: more of it cannot be told from all


@dataclass(frozen=True)
class Cause:
    """`share` is of the loop's time, `wait_share` of its waits (NaN for the training step).

    `evidence`: numbers, their units in their names (_ns, _share, _bytes).
    """

    kind: str
    title: str
    share: float
    wait_share: float
    ns: float
    evidence: dict[str, float]
    advice: str
    delay_ns: float = 0.0  # how long the same work had no core; charged to other programs
    at_once: float = math.nan  # of it at a time, but for a lock; NaN: no lock is known
    low: float = math.nan  # 95 % interval of `share`, from how it varies between batches
    high: float = math.nan
    remedy: Remedy = CODE  # what the advice changes
    place: BlockedPlace | None = None  # where most of the threads in it were blocked
    unnamed_advice: str = ""  # without the operation's name, as `Advice`; in no document

    @property
    def delay_share(self) -> float:
        """The share of the loop in which the same work had no core."""
        delay = self.share * ratio(self.delay_ns, self.ns) if self.delay_ns else 0.0
        return max(min(delay, _ALL - self.share), 0.0)

    @property
    def gain(self) -> float:
        """The speed-up of the loop without this cause, if all else took as long as before.

        NaN where all else would not (without what occupies cores or the interpreter, it is
        quicker), where it might never have ended, and for a small share. On a busy machine, the
        time in which this work had no core is saved as well.
        """
        shared = (*_OF_CORES, INTERPRETER.kind, STANDING.kind)
        alone = self.part not in (STEP, OUTSIDE_PART) and self.kind not in shared
        whole = self.share + self.delay_share
        known = alone and self.share >= _WORTH and whole < 1
        return min(1.0 / (1.0 - whole), self.at_once) if known else math.nan

    @property
    def reason(self) -> str:
        """A sentence with the numbers behind it; "" where its share says all."""
        text = BY_KIND[self.kind].reason(Evidence(self.evidence))
        lost = self.evidence.get(LOST_STEPS, 0.0)
        if lost > LITTLE * self.ns:
            part = share(self.share * ratio(lost, self.ns))
            lost_words = (
                f"It includes {duration(lost)} ({part} of the loop) that the steps lost, as it "
                "used their cores."
            )
            text = f"{text} {lost_words}".strip()
        return f"{text} {blocked_at(self.place)}".strip()

    @property
    def is_silent(self) -> bool:
        """True if nothing waits for it: memory that grows, data that are not as intended."""
        return BY_KIND[self.kind].silent

    @property
    def part(self) -> str:
        """The part of the loop that it is in: "waits", "step", "start-up" or "shut-down"."""
        return BY_KIND[self.kind].part


@dataclass(frozen=True)
class Verdict:
    """The verdict on a loop; `causes`: the most important first.

    `kind`: input-bound, consumer-bound, start-up-bound, outside, standstill or unknown. Shares are
    of the loop's time: input_share (waits beyond the start-up), startup_share (`iter()` to the
    first batch), step_share, shutdown_share; they add up to 1. input_low and input_high: the 95 %
    interval of input_share, from how it varies between batches; NaN with few.
    """

    kind: str
    degree: str  # "highly", "moderately", "not" (input-bound); "" for unknown
    summary: str
    input_share: float
    startup_share: float
    step_share: float
    shutdown_share: float
    causes: list[Cause]
    doubt: str = ""  # a reason to doubt all of it, in a sentence
    flaws: tuple[str, ...] = ()  # worth knowing whatever they cost: data, memory, limits, omissions
    ruled_out: tuple[str, ...] = ()  # what was measured, and is no cause
    input_low: float = math.nan
    input_high: float = math.nan
    as_large: str = ""  # title of a cause that may be larger than the first one
    # True: the causes are those of the loop without other programs, and their shares are of it.
    without_others: bool = False

    @property
    def step_lacks_cores(self) -> bool:
        """True if the step sets the pace, and missing cores are what slows it most."""
        if self.kind != "consumer-bound" or not self.causes:
            return False
        first = self.causes[0]
        return bool(missing_cores.clause(first.kind, first.evidence))

    @property
    def slows_steps(self) -> list[Cause]:
        """The causes for which the steps took longer, beside their own work."""
        own_work = (TRAINING_STEP.kind, LONG_STEPS.kind, TRACING.kind)
        return [each for each in self.causes if each.part == STEP and each.kind not in own_work]

    @property
    def lost_in_steps_ns(self) -> float:
        """How much longer the steps took for a cause that is not their own work."""
        return sum(cause.ns for cause in self.slows_steps)

    def largest_causes(self, most: int) -> list[Cause]:
        """Return `most` causes in their order: the first, those without a share, the largest."""

        def rank(index: int) -> tuple[bool, float]:
            cause = self.causes[index]
            named = index == 0 or math.isnan(cause.share) or cause.is_silent
            return not named, -cause.share if not named else 0.0

        chosen = sorted(range(len(self.causes)), key=rank)[:most]
        return [self.causes[index] for index in sorted(chosen)]


def verdict(scope: Scope) -> Verdict:
    """Judge one loader's loop."""
    loop_account = account(scope)
    return judge(loop_account, circumstances_of(scope, loop_account.use))


def judge(loop_account: Account, circumstances: Circumstances) -> Verdict:
    """Judge a loop whose time is accounted for."""
    shares = parts_of_loop(loop_account, circumstances)
    of_loop = (shares.inputs, shares.startup, shares.step, shares.shutdown)
    if not loop_account.loop_ns > 0:
        return Verdict("unknown", "", "No batch was taken from this loader.", *of_loop, [])
    if 0 < circumstances.taken < _LEAST_BATCHES and not circumstances.partial:
        were = "was" if circumstances.taken == 1 else "were"
        few = f"{plural(circumstances.taken, 'batch')} {were} taken"
        return Verdict("unknown", "", f"Only {few}: too few to judge.", *of_loop, [])
    decided = _decided(loop_account, circumstances, shares)
    kind, listed = decided.kind, decided.listed
    hidden = listed is not loop_account
    # Of waits that are hidden, those at the edges are not.
    charges = ranked(listed.charges, kind, 1.0 - listed.delay_share, decided.brief or hidden)
    causes = _causes(charges, listed, circumstances, kind)
    return Verdict(
        kind,
        decided.degree,
        _summary(shares, decided, causes, hidden),
        *of_loop,
        causes,
        doubt=remarks.doubt(circumstances.use),
        flaws=(
            *_left_out(loop_account),
            *remarks.flaws(
                circumstances, loop_account.loop_ns, causes=[cause.kind for cause in causes]
            ),
            *(cause.reason for cause in causes if cause.is_silent),
        ),
        ruled_out=tuple(ruled_out(listed, circumstances, {cause.kind for cause in causes})),
        input_low=shares.low,
        input_high=shares.high,
        as_large=_as_large(charges, kind, listed, circumstances),
        without_others=hidden,
    )


@dataclass(frozen=True)
class _Pacing:
    """`own`: the waits, as a share of the time that other programs left the loop that is judged.

    `listed`: the account whose causes are listed; another one than the loop's where other programs
    hide its waits. `brief`: start-up and shut-down come once in several epochs, or are short.
    `unclear`: why waits of more than `MODERATE` are not said to hold up the loop; "" where they
    are, or are less.
    """

    kind: str
    degree: str
    own: float
    listed: Account
    brief: bool
    unclear: str


def _decided(loop_account: Account, circumstances: Circumstances, shares: PartsOfLoop) -> _Pacing:
    """Decide what sets the pace of the loop."""
    listed, own = loop_account, max(shares.inputs - shares.others, 0.0) / shares.free
    # Others that slow the steps down hide waits behind them: the loop without others is judged.
    if loop_account.without_others and own < steady_wait_share(loop_account.without_others):
        listed = loop_account.without_others
        own = steady_wait_share(listed)
    # A job of many epochs has a start-up that comes once among the waits of all of them.
    once = _came_once(loop_account.epochs)
    brief = once or _is_brief(loop_account, shares.edges * loop_account.loop_ns)
    # Both shares with what other programs took: that is part of both.
    at_edges = shares.edges > shares.inputs and not brief and not once
    edges = (shares.edges - shares.edges_taken) / shares.free if at_edges else 0.0
    # A replay has no edges: its waits are a share of what lies between them.
    kind, degree = _kind(own, edges, own if listed is loop_account else own * (1.0 - edges))
    listed = listed if kind == "input-bound" else loop_account
    unclear = ""
    if kind == "input-bound" and listed is loop_account:
        unclear = _unclear(degree, own, shares, loop_account, circumstances)
    if unclear:
        kind, degree = "consumer-bound", "not"
    return _Pacing(kind, degree, own, listed, brief, unclear)


def _causes(
    charges: list[Charge], listed: Account, circumstances: Circumstances, kind: str
) -> list[Cause]:
    """Return the causes that are worth a line; at least one, if there is any."""
    judged = [_cause(charge, listed, circumstances, kind) for charge in charges]
    worth = [cause for cause in judged if cause.share >= LEAST_SHARE or cause.is_silent]
    return worth or judged[:1]


def _summary(shares: PartsOfLoop, decided: _Pacing, causes: list[Cause], hidden: bool) -> str:
    """Return the sentences that sum the verdict up."""
    interval = interval_words(shares.low, shares.high)
    if hidden:
        return summary_of_hidden(shares.inputs, interval, decided.own)
    left = decided.own, min((shares.step - shares.step_taken) / shares.free, 1.0)
    little = shares.others + shares.edges_taken + shares.step_taken < LITTLE
    text = summary(
        decided.kind,
        shares.inputs,
        shares.edges,
        shares.step,
        interval,
        None if little else left,
        decided.unclear,
    )
    lacking = missing_cores.clause(causes[0].kind, causes[0].evidence) if causes else ""
    if decided.kind == "consumer-bound" and lacking:
        return f"{causes[0].share:.0%} of the loop is lost, {lacking}. {text}"
    return text


def _as_large(
    charges: list[Charge], kind: str, loop_account: Account, circumstances: Circumstances
) -> str:
    """Return the title of a second cause of waits that may be the largest; "" if none may."""
    of_waits = [charge for charge in charges[:2] if BY_KIND[charge.kind].part == WAITS]
    if kind != "input-bound" or len(of_waits) < 2 or charges[0].kind in DEFECTS:
        return ""
    first, second = of_waits
    if loop_account.spread.larger(first, second) < _NOT_TOLD_APART:
        return ""
    return BY_KIND[second.kind].full_title(second, circumstances)


def _left_out(loop_account: Account) -> Iterator[str]:
    if loop_account.warm_up_ns >= LITTLE * loop_account.loop_ns:
        yield (
            f"The first training step took {duration(loop_account.warm_up_ns)} longer than a "
            "typical one (warm-up: compilation, late set-up). It happens once per job; these "
            "shares leave it out."
        )


def _kind(inputs: float, edges: float, of_loop: float) -> tuple[str, str]:
    """Return kind and degree; `of_loop`: the share of the waits where start-ups count as well."""
    degree = "highly" if inputs > HIGH else "moderately" if inputs >= MODERATE else "not"
    if edges > HIGH and edges > of_loop:
        return "start-up-bound", degree
    return ("consumer-bound" if degree == "not" else "input-bound"), degree


def _listed_ns(charge: Charge, loop_account: Account) -> float:
    """Return the time that a cause is listed with if the loop is input-bound, ns.

    What other programs took of the step is listed with what they took of the waits.
    """
    if charge.kind == OTHERS.kind:
        return charge.ns + taken_ns(loop_account, STEP)
    return charge.ns - (charge.taken_ns if BY_KIND[charge.kind].part == STEP else 0.0)


def _unclear(
    degree: str,
    own: float,
    shares: PartsOfLoop,
    loop_account: Account,
    circumstances: Circumstances,
) -> str:
    """Return why waits of more than `MODERATE` are not said to hold up the loop; "" if they are.

    `own`: the waits, as a share of the time that other programs left the loop.
    """
    free = shares.free
    sent, least = share_of(loop_account, SENDING.kind), (shares.low - shares.others) / free
    near, moderate = own < _NEAR_MODERATE, degree == "moderately"
    if moderate and near and least < MODERATE:
        return f", which is not significantly more than {MODERATE:.0%}"
    if moderate and _largest(loop_account) / free < MODERATE:
        return f", and no single cause takes {MODERATE:.0%}"
    if own - sent / free < MODERATE and (
        near or (moderate and _is_usual_way(loop_account, circumstances, free))
    ):
        return f", of which {sent:.1%} is batches on their way from the workers"
    return ""


def _is_usual_way(loop_account: Account, circumstances: Circumstances, free: float) -> bool:
    """Return True if sending takes its usual time and no loader setting is advised against it.

    Then no change of the loader makes these waits shorter. `free`: the part of the loop that other
    programs left; it takes longer beside them.
    """
    sent = [charge for charge in loop_account.charges if charge.kind == SENDING.kind]
    taken = total(float_column(loop_account.epochs, "waits"))
    usual = sum(charge.ns for charge in sent) * free < _WAY_NS * taken
    return usual and not any(
        SENDING.advice(charge, circumstances).remedy.setting for charge in sent
    )


def _largest(loop_account: Account) -> float:
    """Return the largest share of the loop that one cause of waits has, except other programs.

    With what the steps lose to it: without it, both are gone.
    """
    waits = [
        charge.waited_ns - charge.taken_ns + charge.evidence.get(LOST_STEPS, 0.0)
        for charge in loop_account.charges
        if BY_KIND[charge.kind].part == WAITS and charge.kind != OTHERS.kind
    ]
    return ratio(max(waits, default=0.0), loop_account.loop_ns)


def _is_brief(loop_account: Account, edges_ns: float) -> bool:
    """Return True if start-up and shut-down come once and are short, but for usual imports.

    Their share of a longer run is smaller.
    """
    if "rank" not in loop_account.epochs:  # sampled: epochs are not known
        return False
    of_ranks = loop_account.epochs["rank"].value_counts()
    if not len(of_ranks) or of_ranks.max() > 1:
        return False
    least = _BRIEF_NS * len(of_ranks)
    startup = [charge for charge in loop_account.charges if BY_KIND[charge.kind].part == STARTUP]
    importing = sum(min(each.evidence.get("importing_ns", 0.0), each.ns) for each in startup)
    if importing > 0:  # once, by each worker that is spawned
        edges_ns -= importing
        least = max(least, HIGH * loop_account.loop_ns)
    return edges_ns < least


def _came_once(epochs: pd.DataFrame) -> bool:
    """Return True if an epoch between others has little start-up and shut-down.

    That is so if workers are kept. A job of many epochs has the first start-up and the last
    shut-down only once, as this run has.
    """
    if "rank" not in epochs:
        return False
    ordered, whose = epochs.sort_values("epoch"), ["rank", "loader"]
    later, earlier = (ordered[ordered.duplicated(whose, keep=keep)] for keep in ("first", "last"))
    start, starts = (_mean(rows, "iter_ns") + _mean(rows, "first_ns") for rows in (later, ordered))
    end, ends = _mean(earlier, "tail_ns"), _mean(ordered, "tail_ns")
    work = _mean(ordered, "loop_ns") - starts - ends
    return bool(len(later)) and start + end <= HIGH * (work + start + end)


def _mean(epochs: pd.DataFrame, name: str) -> float:
    """Return the mean of a time over the epochs."""
    return ratio(total(float_column(epochs, name)), len(epochs))


def _at_loader(advice: Advice, call_site: str) -> str:
    """Return where the loader is made, if a parameter of it is to be changed; else ""."""
    known = bool(call_site) and call_site not in advice.text
    return f" The loader: {call_site}." if known and advice.remedy.of_loader else ""


def _cause(charge: Charge, loop_account: Account, circumstances: Circumstances, kind: str) -> Cause:
    row = BY_KIND[charge.kind]
    advice = row.advice(charge, circumstances)
    at_loader = "" if row.part == STEP else _at_loader(advice, circumstances.call_site)
    waited = loop_account.loop_ns - loop_account.step_ns
    ns = _listed_ns(charge, loop_account) if kind == "input-bound" else charge.ns
    low, high = (
        ratio(of_it, loop_account.loop_ns) for of_it in loop_account.spread.interval(charge)
    )
    if ns != charge.ns:
        low, high = (of_it * ratio(ns, charge.ns) for of_it in (low, high))
    return Cause(
        kind=charge.kind,
        title=row.full_title(charge, circumstances),
        share=ratio(ns, loop_account.loop_ns),
        wait_share=float("nan") if row.part == STEP else ratio(charge.waited_ns, waited),
        ns=ns,
        evidence=charge.evidence,
        advice=advice.text + at_loader,
        delay_ns=charge.delay_ns,
        at_once=charge.at_once,
        low=low,
        high=min(high, 1.0),
        remedy=advice.remedy,
        place=charge.place,
        unnamed_advice=advice.unnamed + at_loader,
    )
