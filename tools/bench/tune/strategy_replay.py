"""Runs strategies of tuning on recorded rates instead of a program, with optional noise.

A table has the fields of `Setting` (missing ones have their defaults) and `samples_per_s`, and, if
known, `seconds`, `first_batch_s`, `memory_bytes` and `failed`. A setting may have several rows, one
a repetition; each trial takes one of them, by the seed. The result also contains the setting's
median rate, which a strategy does not know.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lotus.common.numbers.statistics import Z95
from lotus.settings.space import PARAMETERS, Measurement, Setting
from lotus.tune.strategies import Strategy

OPTIONAL = ("seconds", "first_batch_s", "memory_bytes")


class Timings:
    """The timings of each setting. `samples` are in a trial of no known time.

    Rates given must be finite and above 0; a row without one is a trial that failed.
    """

    def __init__(self, table: pd.DataFrame | Mapping[Setting, float], samples: int = 1000) -> None:
        self._of: dict[Setting, list[Measurement]] = {}
        rows = _from_frame(table) if isinstance(table, pd.DataFrame) else _from_rates(table)
        for row in rows:
            setting = _setting(row)
            self._of.setdefault(setting, []).append(_measurement(setting, row, samples))
        if not self._of:
            raise ValueError("the table has no timings")

    def __contains__(self, setting: Setting) -> bool:
        return setting.normal() in self._of

    def rate(self, setting: Setting) -> float:
        """The median rate of its trials that worked, samples/s; 0 if none did or it is unknown."""
        rates = [m.samples_per_s for m in self._of.get(setting.normal(), ()) if not m.failed]
        return statistics.median(rates) if rates else 0.0

    def optimum(self) -> Setting:
        """Return the setting of the highest median rate, the cheapest of equals."""
        return min(self._of, key=lambda setting: (-self.rate(setting), setting))

    def regret(self, setting: Setting | None) -> float:
        """Return the loss: 1 - its rate / the highest; 1 for none and for what never worked."""
        highest = self.rate(self.optimum())
        if setting is None or not highest:
            return 1.0
        return 1.0 - self.rate(setting) / highest

    def trial(self, setting: Setting, noise: float, chance: random.Random) -> Measurement:
        """One measurement; `noise` is the standard deviation of the rate's natural logarithm."""
        known = self._of.get(setting.normal())
        if known is None:
            return Measurement.failure(setting, "no timing of this setting")
        drawn = known[0] if len(known) == 1 else chance.choice(known)
        drawn = dataclasses.replace(drawn, setting=setting)
        if drawn.failed or not noise:
            return drawn
        rate = drawn.samples_per_s * math.exp(chance.gauss(0.0, noise))
        spread = math.exp(Z95 * noise)
        return dataclasses.replace(drawn, samples_per_s=rate, low=rate / spread, high=rate * spread)


def replay(
    strategy: Strategy,
    timings: Timings | pd.DataFrame | Mapping[Setting, float],
    *,
    noise: float = 0.0,
    seed: int = 0,
    trials: int | None = None,
    seconds: float | None = None,
) -> pd.DataFrame:
    """Run the strategy to its end, to so many trials or until their time is spent; all trials.

    A row a trial, in order: the fields of `Setting` and `Measurement`, `true_samples_per_s` (the
    setting's median rate) and `reason`. The last trial may end after `seconds`. The result is
    `strategy.best()`; its regret, `Timings.regret`.
    """
    if not isinstance(timings, Timings):
        timings = Timings(timings)
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    spent = 0.0
    while (trials is None or len(rows) < trials) and (seconds is None or spent < seconds):
        setting = strategy.ask()
        if setting is None:
            break
        reason = strategy.reason()
        measurement = timings.trial(setting, noise, chance)
        spent += measurement.seconds
        strategy.tell(measurement)
        row: dict[str, Any] = setting.as_json()
        row |= {name: getattr(measurement, name) for name in MEASURED}
        row |= {"true_samples_per_s": timings.rate(setting), "reason": reason}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*PARAMETERS, *MEASURED, "true_samples_per_s", "reason"])


MEASURED = tuple(f.name for f in dataclasses.fields(Measurement) if f.name != "setting")


def _from_frame(table: pd.DataFrame) -> list[dict[str, Any]]:
    for needed in ("num_workers", "samples_per_s"):
        if needed not in table:
            raise ValueError(f"the table has no column {needed}")
    columns = [
        name for name in (*PARAMETERS, "samples_per_s", *OPTIONAL, "failed") if name in table
    ]
    return [
        dict(zip(columns, values, strict=True))
        for values in table[columns].itertuples(index=False, name=None)
    ]


def _from_rates(table: Mapping[Setting, float]) -> list[dict[str, Any]]:
    return [{**setting.as_json(), "samples_per_s": rate} for setting, rate in table.items()]


def _setting(row: Mapping[str, Any]) -> Setting:
    """Return the row's setting, normal; what it has no value for has the default."""
    fields: dict[str, Any] = {}
    for name in PARAMETERS:
        value = row.get(name)
        if value is None or pd.isna(value):
            continue
        if name in ("num_workers", "prefetch_factor", "threads", "torch_threads"):
            if not float(value).is_integer():
                raise ValueError(f"{name} is {value!r}: it must be a whole number")
            fields[name] = int(value)
        elif name == "start_method":
            fields[name] = str(value)
        else:
            if value not in (False, True):
                raise ValueError(f"{name} is {value!r}: it must be true or false")
            fields[name] = bool(value)
    if fields.get("num_workers") == 0:
        fields.pop("prefetch_factor", None)  # tables write 0 there
    return Setting.from_json(fields).normal()


def _measurement(setting: Setting, row: Mapping[str, Any], samples: int) -> Measurement:
    rate = float(row["samples_per_s"])
    known = {name: float(row[name]) for name in OPTIONAL if not _absent(row.get(name))}
    failed = "" if _absent(row.get("failed")) else str(row["failed"])
    if not failed and (math.isnan(rate) or rate == 0):
        failed = "no rate in the table"
    if failed:
        return Measurement.failure(setting, failed, known.get("seconds", 0.0))
    if not 0 < rate < math.inf:
        raise ValueError(f"samples_per_s is {rate}: it must be above 0 and finite")
    memory = known.get("memory_bytes")
    return Measurement(
        setting,
        rate,
        rate,
        rate,
        known.get("seconds", samples / rate),
        known.get("first_batch_s"),
        None if memory is None else int(memory),
    )


def _absent(value: Any) -> bool:
    return value is None or bool(pd.isna(value)) or value == ""
