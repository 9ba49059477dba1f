"""The settings of a sampled loop's loader, as far as torch's frames show them."""

from dataclasses import dataclass

import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.loop_shares import Sampled
from lotus.analysis.common.columns import int_column
from lotus.common.numbers.array_types import Ints


@dataclass(frozen=True)
class LoaderSettings:
    """Settings of a loader; None and "": unknown.

    batch_sizes  the smallest and the largest batch; (0, 0): the data set makes batches
    in_sequence  whether samples come in the order of their indices
    """

    workers: int | None = None
    batch_sizes: tuple[int, int] | None = None
    dataset: str = ""
    iterable: bool | None = None
    in_sequence: bool | None = None
    drop_last: bool | None = None
    persistent_workers: bool | None = None
    spawned: bool | None = None
    pin_memory: bool | None = None


def settings_of(seen: Sampled, loop: int, only: bool) -> LoaderSettings:
    """Return the settings of the loader of one loop; `only`: there is no other loop.

    A process whose loop is unknown, as a spawned worker, counts only if there is no other loop.
    """
    settings = seen.evidence.settings
    own = seen.samples[seen.samples["pid"].isin(settings["pid"])]
    loop_of = own[own["loop"] >= 0].groupby("pid")["loop"].agg(lambda loops: loops.mode().iloc[0])
    mine = settings[settings["pid"].map(loop_of).fillna(loop if only else -1) == loop]
    sizes = _known(mine, "batch")
    names = set(mine["dataset"]) - {""}
    pins = bool((seen.samples["phase"] == phases.PIN).any())
    return LoaderSettings(
        workers=_same(mine, "workers"),
        batch_sizes=(int(sizes.min()), int(sizes.max())) if sizes.size else None,
        dataset=str(names.pop()) if len(names) == 1 else "",
        iterable=_flag(mine, "iterable"),
        in_sequence=_flag(mine, "in_sequence"),
        drop_last=_flag(mine, "drop_last"),
        persistent_workers=_flag(mine, "persistent"),
        spawned=_flag(mine, "spawned"),
        pin_memory=True if pins and only else None,
    )


def _known(mine: pd.DataFrame, name: str) -> Ints:
    values = int_column(mine, name)
    return values[values >= 0]


def _same(mine: pd.DataFrame, name: str) -> int | None:
    """Return the value that all processes agree on; None if they differ or none is known."""
    values = set(_known(mine, name).tolist())
    return int(values.pop()) if len(values) == 1 else None


def _flag(mine: pd.DataFrame, name: str) -> bool | None:
    value = _same(mine, name)
    return None if value is None else bool(value)
