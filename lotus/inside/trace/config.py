"""The configuration of a recording."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
LEVELS = ("batch", "sample", "op", "op+cpu")
RANGES = ("nvtx", "itt")


class Config:
    """The launcher's configuration, from LOTUS_* in the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.run = environ["LOTUS_RUN"]
        level = environ.get("LOTUS_LEVEL") or "op"
        self.level = LEVELS.index(level if level in LEVELS else "op")
        first, _, last = (environ.get("LOTUS_BATCHES") or ":").partition(":")
        self.first = int(first) if first else 0
        self.last = int(last) if last else None
        self.every = int(environ.get("LOTUS_EVERY") or 1)
        self._all = self.first <= 0 and self.last is None and self.every == 1
        self.max_log = int(environ.get("LOTUS_MAX_LOG") or 0)
        self.quiet = bool(environ.get("LOTUS_QUIET"))
        self.hooks = environ.get("LOTUS_HOOKS") or ""  # "python": not those in C
        self.counters = environ.get("LOTUS_COUNTERS") or ""
        profilers = (environ.get("LOTUS_RANGES") or "").split(",")
        self.ranges = tuple(name for name in RANGES if name in profilers)

    def selects(self, batch: int) -> bool:
        return self._all or (
            batch >= self.first
            and (self.last is None or batch < self.last)
            and batch % self.every == 0
        )
