"""Applies a mapping to a profile without times and threads: counts per operation."""

from collections.abc import Mapping as Table

import numpy as np
import pandas as pd

from native_map.errors import UnusableError
from native_map.paper.function_counts import Profile, resolved
from native_map.paper.paper_mapping import Mapping

# The ways to match a pair, the best first.
MATCHES = ("module", "library", "function")
_ADDRESS = r"(?:func@)?0x[0-9a-fA-F]+"


def apply(
    mapping: Mapping, profile: Profile, op_seconds: Table[str, float] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return `(per_operation, per_pair, leftovers)`.

    A function that several operations share is split by its measured time in the isolated runs of
    each. Isolated runs may execute operations unequally often: `op_seconds`, the seconds that each
    operation took in the profiled run, first scales each operation's isolated time.

    `per_pair`: `operation`, `module`, `function`, `weight`, `shared` (by how many operations),
    `runs`, `of`, `match` ('module'; 'library': the same one in another version; 'function': one
    side has no module), `evidence` ('strong', or why it is weak), the profile's additive columns
    times the weight, and its means unchanged.
    `per_operation`: sums, weighted means, `ipc` if it can be computed, `pairs`, and the shares of
    the weighting column that rest on weak pairs (`weak`), on few runs (`few_runs`), on the
    function's name alone (`no_module`) and on functions that other operations share (`shared`);
    `covered` is the share of the operation's isolated time in functions that the profile has. It is
    low if the isolated run behaved differently from the real one.
    `leftovers`: functions of no operation, with the `reason`, and the difference to the file's own
    total if its rows do not reach it. per_pair and leftovers sum to `profile.totals`.
    No share is below zero: it is 0, or NaN if it is not resolved.
    """
    entries = _timed(mapping, op_seconds)
    rows = profile.functions.reset_index(drop=True).copy()
    rows["row"] = np.arange(len(rows))
    rows["key"] = _key(rows["function"])
    rows["library"] = _library(rows["module"])
    matches, used = _matched(rows, entries)
    pairs = matches.merge(rows.drop(columns=["key", "library"]), on="row", validate="many_to_one")
    pairs = pairs.sort_values(["row", "operation"], kind="stable").reset_index(drop=True)
    for name in profile.additive:
        pairs[name] *= pairs["weight"]
    pairs["shared"] = pairs.groupby("row")["operation"].transform("nunique")
    few = (pairs["runs"] < 2) | (pairs["runs"] * 2 < pairs["of"])
    weak_match = pairs["match"] == MATCHES[2]
    pairs["evidence"] = np.select(
        [few & weak_match, few, weak_match],
        ["few runs, no module", "few runs", "no module"],
        "strong",
    )
    front = ["operation", "module", "function", "weight", "shared", "runs", "of", "match"]
    metrics = [*profile.additive, *profile.means]
    pairs = pairs[[*front, "evidence", *metrics]]
    leftovers = _leftovers(rows[~rows["row"].isin(matches["row"])], mapping, profile)
    summed = _summed(pairs, mapping, profile)
    covered = entries[entries["entry"].isin(used)].groupby("operation")["share"].sum()
    summed["covered"] = summed["operation"].map(covered).fillna(0.0)
    # Means use the shares unchanged; only the results are cut at zero.
    return (
        resolved(summed, profile.means),
        resolved(pairs, profile.means),
        resolved(leftovers, profile.means),
    )


def _timed(mapping: Mapping, op_seconds: Table[str, float] | None) -> pd.DataFrame:
    """Return the kept pairs with `time`: a shared function is split in proportion to it."""
    entries = mapping.kept
    entries["entry"] = np.arange(len(entries))
    entries["key"] = _key(entries["function"])
    entries["library"] = _library(entries["module"])
    if op_seconds is None:
        entries["time"] = entries[mapping.measure] / entries["of"]
        return entries
    seconds = entries["operation"].map(dict(op_seconds))
    if not (seconds >= 0).all():
        lacking = sorted(set(entries.loc[~(seconds >= 0), "operation"]))
        raise UnusableError(
            f"no seconds are given for {', '.join(lacking)}; give all operations' or none"
        )
    entries["time"] = entries["share"] * seconds
    return entries


def _matched(rows: pd.DataFrame, entries: pd.DataFrame) -> tuple[pd.DataFrame, set[int]]:
    """Return `row`, `operation`, `runs`, `of`, `match`, `weight` of each row that an operation has,
    and the entries that were used.
    """
    columns = ["entry", "operation", "runs", "of", "time"]
    named = ~rows["function"].str.fullmatch(_ADDRESS)
    has_module, with_module = rows["module"] != "", entries["module"] != ""
    # An address is meaningful only within one build of one file.
    stages = (
        (rows[has_module], entries[with_module], ["module", "key"]),
        (rows[has_module & named], entries[with_module], ["library", "key"]),
        (rows[~has_module & named], entries, ["key"]),
        (rows[has_module & named], entries[~with_module], ["key"]),
    )
    parts: list[pd.DataFrame] = []
    matched: set[int] = set()
    used: set[int] = set()
    for (side, candidates, keys), match in zip(stages, (*MATCHES, MATCHES[2]), strict=True):
        side = side.loc[~side["row"].isin(matched), ["row", *keys]]
        part = side.merge(candidates[[*columns, *keys]], on=keys)
        matched.update(part["row"])
        used.update(part["entry"])
        # A function name in several modules, or in two spellings, is one pair of the operation.
        part = part.groupby(["row", "operation"], as_index=False, sort=False).agg(
            {"runs": "max", "of": "max", "time": "sum"}
        )
        part["match"] = match
        parts.append(part)
    pairs = pd.concat(parts, ignore_index=True)
    total_time = pairs.groupby("row")["time"].transform("sum")
    count = pairs.groupby("row")["time"].transform("size")
    pairs["weight"] = (pairs["time"] / total_time.where(total_time > 0)).fillna(1.0 / count)
    return pairs.drop(columns="time"), used


def _leftovers(rows: pd.DataFrame, mapping: Mapping, profile: Profile) -> pd.DataFrame:
    dropped = mapping.functions[~mapping.functions["kept"]]
    seen = set(_key(dropped["function"]))
    kept_keys = set(_key(mapping.kept["function"]))
    address = rows["function"].str.fullmatch(_ADDRESS)
    leftovers = rows[["module", "function"]].copy()
    leftovers["reason"] = np.select(
        [
            address & (rows["module"] == ""),
            rows["key"].isin(kept_keys),
            rows["key"].isin(seen),
        ],
        [
            "an address without a module",
            "the mapping has it in another module",
            "seen in too few isolated runs",
        ],
        "in no operation's isolated runs",
    )
    for name in (*profile.additive, *profile.means):
        leftovers[name] = rows[name]
    unlisted = {
        name: profile.totals[name] - float(profile.functions[name].sum())
        for name in profile.additive
    }
    unlisted = {
        n: v if abs(v) > 1e-9 * abs(profile.totals[n]) else 0.0 for n, v in unlisted.items()
    }
    if any(unlisted.values()):
        row = {
            "module": "",
            "function": "",
            "reason": "the export's own total less the functions that it lists",
            **unlisted,
        }
        leftovers = pd.concat([leftovers, pd.DataFrame([row])], ignore_index=True)
    weight = profile.weight or profile.additive[0]
    return leftovers.sort_values(weight, ascending=False, kind="stable").reset_index(drop=True)


def _summed(pairs: pd.DataFrame, mapping: Mapping, profile: Profile) -> pd.DataFrame:
    """Return one row per operation of the mapping, also for those that the profile lacks."""
    names = pd.Index(mapping.operations["name"], name="operation")
    grouped = pairs.groupby("operation")
    sums = grouped[list(profile.additive)].sum(min_count=1).reindex(names)
    sums.insert(0, "pairs", grouped.size().reindex(names, fill_value=0))
    base = pairs[profile.weight].fillna(0.0) if profile.weight else pairs["weight"]

    def part(chosen: pd.Series) -> pd.Series:
        top = base.where(chosen, 0.0).groupby(pairs["operation"]).sum()
        whole = base.groupby(pairs["operation"]).sum()
        return (top / whole.where(whole > 0)).reindex(names)

    for name in profile.means:
        known = pairs[name].notna()
        top = (pairs[name] * base).where(known, 0.0).groupby(pairs["operation"]).sum()
        whole = base.where(known, 0.0).groupby(pairs["operation"]).sum()
        sums[name] = (top / whole.where(whole > 0)).reindex(names)
    if {"instructions", "cycles"} <= set(profile.additive):
        sums["ipc"] = sums["instructions"] / sums["cycles"].where(sums["cycles"] > 0)
    sums["weak"] = part(pairs["evidence"] != "strong")
    sums["few_runs"] = part(pairs["evidence"].str.startswith("few runs"))
    sums["no_module"] = part(pairs["match"] == MATCHES[2])
    sums["shared"] = part(pairs["shared"] > 1)
    return sums.reset_index()


def _key(names: pd.Series) -> pd.Series:
    """Return a function's name without blanks and commas, which exports write differently."""
    return names.str.replace(r"[\s,]+", "", regex=True)


def _library(modules: pd.Series) -> pd.Series:
    """`libc-2.31.so`, `libc.so.6` -> libc; `libgomp-a34b3233.so.1` -> libgomp; python3.9 -> python.

    The versions of a library differ between machines, and wheels add a hash to the name.
    """
    names = modules.str.replace(r"\.so(?:\.[0-9.]+)?$", "", regex=True)
    names = names.str.replace(r"\.(?:cpython-[0-9]+|abi3)[\w-]*$", "", regex=True)
    names = names.str.replace(r"-(?:[0-9a-f]{8}|[0-9]+(?:\.[0-9]+)+)$", "", regex=True)
    return names.str.replace(r"^(?:lib)?python[0-9]+(?:\.[0-9]+)*$", "python", regex=True)
