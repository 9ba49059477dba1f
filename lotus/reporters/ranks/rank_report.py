"""Compares ranks: which ones delay the others, and why; in sentences, and for a terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lotus.analysis.common.columns import float_column, records
from lotus.analysis.ranks.rank_reasons import Why
from lotus.analysis.ranks.rank_verdict import LEAST_STEPS, LastShare, RankSummary, Straggler
from lotus.common.text.formatting import (
    amount,
    duration,
    operation_name,
    plain,
    plural,
    share,
    shorten,
)
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of, tight

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

TITLE = "Ranks against each other"
_MOST_RANKS, _MOST_NAMED = 16, 4
_NOTABLE = 0.05


def write(console: "Console", summary: RankSummary) -> None:
    """Print the ranks' part of the report."""
    console.print(f"\n{TITLE}", style="bold")
    for line in [*verdict(summary), *remarks(summary)]:
        print_paragraph(console, "", line)
    columns, rows, omitted = cells(summary, _MOST_RANKS, intervals=False)
    print_table(console, _legend(summary), columns, rows)
    if omitted:
        console.print(f"  and {plural(omitted, 'rank')} more: see --json", style="dim")


def _legend(summary: RankSummary) -> str:
    if not summary.steps.synced:
        return "A mean step of each rank"
    return "A mean step (late: after the others; by: before the second, where it is last)"


def cells(
    summary: RankSummary, most: int, intervals: bool = True
) -> tuple[list[tuple[str, str]], list[list[str]], int]:
    """Return (columns, rows, ranks left out) of the table, the most often last first."""
    table = summary.table
    # Values that are equal on all ranks have no column.
    hosts = table["host"].nunique() > 1
    sizes = table["size"].round(3).nunique() > 1
    cores = bool(table["cores"].notna().any())
    synced = summary.steps.synced
    by = ["last_share", "late_ns"] if synced else ["wait_ns"]
    ordered = table.sort_values([*by, "rank"], ascending=[False] * len(by) + [True])
    rows = []
    for row in rows_of(ordered.head(most)):
        line = [str(row["rank"])]
        line += [shorten(plain(row["host"]), 20)] if hosts else []
        line += [_cores(row["cores"])] if cores else []
        line += [amount(row["steps"]), *([amount(row["size"])] if sizes else [])]
        line += [tight(row["wait_ns"]), tight(row["step_ns"])]
        if synced:
            line += [tight(row["sync_ns"]), tight(row["late_ns"]), share(row["last_share"])]
            interval = f"{share(row['last_low'])}-{share(row['last_high'])}"
            line += [*([interval] if intervals else []), tight(row["lead_ns"])]
        rows.append(line)
    columns = [("rank", LEFT), *([("host", LEFT)] if hosts else [])]
    names = [*(["cores"] if cores else []), "steps", *(["samples"] if sizes else [])]
    names += ["wait", "step"]
    if synced:
        names += ["sync", "late", "last", *(["95 %"] if intervals else []), "by"]
    return [*columns, *((name, RIGHT) for name in names)], rows, max(0, len(table) - most)


def verdict(summary: RankSummary) -> list[str]:
    """Return which ranks delay the others and why, or what is known; most important first."""
    if not summary.steps.synced:
        return [_unsynced(summary)]
    if not summary.steps.together:
        return [
            "Who holds the others up is not known: in most steps ranks had their averages of "
            "gradients before others had arrived, so these ranks do not all average with each "
            "other, as in several process groups."
        ]
    texts = [_straggler(straggler, summary) for straggler in summary.stragglers]
    if summary.more:
        verb = "is" if len(summary.more) == 1 else "are"
        texts.append(f"{_upper(_ranks(summary.more))} {verb} often last as well: see the table.")
    if texts:
        return texts
    if len(summary.steps.ranks) < 2:
        return [
            f"Only rank {summary.steps.ranks[0]} was recorded: there is nothing to compare it with."
        ]
    if summary.decided < LEAST_STEPS:
        return [
            f"Too few steps to say who holds the others up: who was last is known of "
            f"{summary.decided} after the first, and {LEAST_STEPS} are needed."
        ]
    nearest = summary.nearest
    text = "No rank holds the others up"
    if nearest is None:
        return [text + "."]
    return [
        f"{text}: {_who(nearest)} is most often last, in {_often(nearest.last)}, on average "
        f"{_apart(nearest.behind_ns)}."
    ]


def _straggler(straggler: Straggler, summary: RankSummary) -> str:
    verb = "is" if len(straggler.ranks) == 1 else "are"
    text = (
        f"{_upper(_who(straggler, summary))} {verb} last in {_often(straggler.last)}, on average "
    )
    text += _apart(straggler.behind_ns)
    if straggler.cost_ns > 0.005 * summary.mean_ns:
        part = share(straggler.cost_ns / summary.mean_ns)
        came = "it" if len(straggler.ranks) == 1 else "the last of them"
        text += (
            f"; a step would be {duration(straggler.cost_ns)} ({part}) shorter if {came} came with "
        )
        text += "the second latest"
    return f"{text}. {_why(straggler.why)}" if straggler.why is not None else f"{text}."


def _apart(ns: float) -> str:
    return f"{duration(abs(ns))} {'after' if ns >= 0 else 'before'} the others"


def _often(last: LastShare) -> str:
    return (
        f"{share(last.share)} of {plural(last.steps, 'step')} (95 % interval {share(last.low)} to "
        f"{share(last.high)}; {share(last.fair)} if all were alike)"
    )


def _who(straggler: Straggler, summary: RankSummary | None = None) -> str:
    if straggler.host is not None:
        return f"the {len(straggler.ranks)} ranks on host {_host(straggler.host)}"
    rank, name = straggler.ranks[0], f"rank {straggler.ranks[0]}"
    if summary is None or len(set(summary.steps.hosts)) < 2:
        return name
    host = summary.steps.hosts[int(np.searchsorted(summary.steps.ranks, rank))]
    return f"{name} on host {_host(host)}" if host else name


def _host(name: str) -> str:
    return shorten(plain(name), 40)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _why(why: Why) -> str:
    """Return how a rank's own time exceeds the reference's, and the known reasons."""
    other = f"rank {why.reference}"
    if not why.kind:
        return (
            f"On average its own time of a step is no longer than {other}'s: it is late only now "
            "and then."
        )
    if why.kind == "batch size":
        cause = f"It takes {_size(why.size)} samples a step, {other} {_size(why.reference_size)}"
    elif why.kind == "input":
        cause = _input(why, other)
    else:
        ratio = (why.own_ns - why.reference_own_ns) / max(why.reference_own_ns, 1.0) + 1
        cause = f"Its own time of a step, without input, is what takes longer: {ratio:.1f} times "
        cause += f"{other}'s in all{_machines(why)}"
    parts = []
    for name, ns in (("waiting for data", why.wait_ns), ("step", why.step_ns)):
        parts.append(f"{duration(abs(ns))} {'more' if ns >= 0 else 'less'} {name}")
    return f"{cause}. Of a step against {other}'s: {', '.join(parts)}."


def _input(why: Why, other: str) -> str:
    if why.operation:
        name = shorten(plain(operation_name(why.operation)), 40)
        text = f"{name} takes {why.times:.1f} times {other}'s"
        if not np.isfinite(why.times):
            text = f"{name} is what {other} does not run"
        text += f" ({duration(why.operation_ns)} a sample)"
    elif why.times > 1 + _NOTABLE:
        text = f"Making a sample takes {why.times:.1f} times {other}'s"
    elif np.isfinite(why.times):
        text = f"Making a sample takes no longer than {other}'s, and yet it waits for data"
    else:
        text = "It waits longer for data; what making a sample takes was not recorded"
    if 0 <= why.workers != why.reference_workers >= 0:
        text += f", with {plural(why.workers, 'worker')} against {why.reference_workers}"
    return text + _machines(why)


def _machines(why: Why) -> str:
    text = ""
    if not np.isnan(why.cores - why.reference_cores) and why.cores != why.reference_cores:
        text += f", at {_cores(why.cores)} cores against {_cores(why.reference_cores)}"
    if why.model and why.reference_model and why.model != why.reference_model:
        models = [shorten(plain(model), 40) for model in (why.model, why.reference_model)]
        text += f", on {models[0]} against {models[1]}"
    return text


def _cores(count: float) -> str:
    return f"{count:.3g}" if count == count else "-"


def _size(count: float) -> str:
    return f"{count:.0f}" if abs(count - round(count)) < 0.05 else f"{count:.1f}"


def _unsynced(summary: RankSummary) -> str:
    text = "Who arrived last is not known: no synchronisation of gradients was recorded"
    table = summary.table[summary.table["wait_ns"].notna()]
    if len(table) < 2:
        return text + "."
    ordered = table.sort_values("wait_ns")
    least, most = ordered.iloc[0], ordered.iloc[-1]
    return (
        f"{text}. Waiting for data is: rank {most['rank']} waits longest, "
        f"{duration(float(most['wait_ns']))} a batch, rank {least['rank']} shortest, "
        f"{duration(float(least['wait_ns']))}; a step may hide waiting for other ranks."
    )


def remarks(summary: RankSummary) -> list[str]:
    """Return what the comparison leaves out, and ranks that took part in some steps only."""
    return [*_clocks(summary), *_absent(summary)]


def _clocks(summary: RankSummary) -> Iterator[str]:
    steps = summary.steps
    if not steps.synced:
        return
    errors = steps.clock_error_ns
    unknown = sorted({host for host, error in zip(steps.hosts, errors, strict=True)
                      if not np.isfinite(error)})  # fmt: skip
    if unknown:
        names = ", ".join(_host(host) or "?" for host in unknown[:_MOST_NAMED])
        suffix = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        yield (
            f"How far the clock of host {names}{suffix} is off is not known: lateness against "
            "other hosts' ranks is not certain, so no rank is named last there."
        )
    elif errors.max(initial=0.0) > 0:
        worst = sorted(set(errors))[-2:]
        yield f"Clocks of two hosts may be {duration(float(sum(worst)))} apart at most."
    if summary.undecided:
        reason = "by less than that" if errors.max(initial=0.0) > 0 else "at the same moment"
        yield f"In {plural(summary.undecided, 'step')} the last came {reason}: no rank is named."


def _absent(summary: RankSummary) -> Iterator[str]:
    steps, table = summary.steps, summary.table
    if summary.missing:
        whole = f" of {steps.world_size}" if steps.world_size > 0 else ""
        yield f"{_upper(_ranks(summary.missing))}{whole} took no step in what was recorded."
    last = len(steps.last) - 1
    some = table[float_column(table, "steps") < last + 1]
    for row in records(some.head(_MOST_NAMED)):
        yield (
            f"Rank {row['rank']} took part in {amount(row['steps'])} of {last + 1:,} steps, "
            f"from step {row['first_step']:,} to {row['last_step']:,}."
        )
    if len(some) > _MOST_NAMED:
        yield f"{len(some) - _MOST_NAMED} more ranks took part in some steps only."
    if steps.thinned > 1:
        yield f"One step in {steps.thinned} was compared, as there are very many."


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    named = [str(rank) for rank in ranks[:_MOST_NAMED]]
    if len(ranks) > _MOST_NAMED:
        return f"ranks {', '.join(named)} and {len(ranks) - _MOST_NAMED} more"
    return f"ranks {', '.join(named[:-1])} and {named[-1]}"
