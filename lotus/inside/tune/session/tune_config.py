"""The configuration of `lotus tune` in the program: LOTUS_TUNE, and the process's place in its job.

LOTUS_TUNE is JSON with these keys:

exchange  the directory of common/control/exchange.py
loader    the loader to tune: its number in the order of first iterations, its name, or null for the
          largest one
watch     the number of batches to observe; null: the default
apply     whether the program continues afterwards
feed      whether the program only gets data of one kind and another (feeds/fed_training.py)
choices   alternatives by kind of data (feeds/switched_alternatives.py); empty: none
cache     a cache of samples (feeds/switched_cache.py), as in an entry of settings; null: none
record    the environment for recording the trials; empty: they are not recorded
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from .core_share import number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_RANKS = ("LOCAL_RANK", "RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


class TuneConfig:
    """The configuration in LOTUS_TUNE."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        fields: dict[str, Any] = json.loads(environ["LOTUS_TUNE"])
        self.environ = environ
        self.exchange: str = fields["exchange"]
        self.loader: int | str | None = fields["loader"]
        self.batches: int | None = fields["watch"]
        self.apply: bool = fields["apply"]
        self.feed: bool = fields.get("feed", False)
        self.choices: dict[str, list[str]] = fields.get("choices") or {}
        self.cache: dict[str, Any] | None = fields.get("cache")
        self.record: dict[str, str] = fields.get("record") or {}

    def ranks(self) -> int:
        """Return the number of ranks of the job."""
        distributed: Any = sys.modules.get("torch.distributed")
        with suppress(Exception):
            if distributed is not None and distributed.is_initialized():
                return int(distributed.get_world_size())
        return number_in(self.environ, _WORLDS) or 1

    def local_rank(self) -> int | None:
        """Return the rank of the process on its machine; None if no launcher sets it."""
        return number_in(self.environ, _RANKS)

    def without_lotus(self) -> dict[str, Any]:
        """Return how the program continues if lotus has exited or failed."""
        return {"do": "leave"} if self.apply else {"do": "end", "code": 1}
