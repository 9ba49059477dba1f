"""Measures what cached samples take compressed: bytes, and the time to write and to read them."""

from __future__ import annotations

from ..cache import random_sources
from ..cache.cached_samples import CachedSample, entry_parts
from ..cache.compression import METHODS, compressed, usable
from ..cache.entry_codec import encode
from ..cache.entry_decoder import decode
from ..common.clocks import clock
from .busy_time import BusyTime, reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..cache.sample_store import SampleStore

_MOST = 8  # samples for each cut and method


class CompressionBench:
    """Measures a cut's first samples with each method, in about `budget_ns` for each method."""

    def __init__(self, store: SampleStore, busy: BusyTime, budget_ns: int) -> None:
        self._store, self._busy, self._budget_ns = store, busy, budget_ns
        self._spent_ns: dict[tuple[int, str], int] = {}
        # By cut and method, for each sample: bytes, CPU ns to write, CPU ns to read.
        self._taken: dict[tuple[int, str], list[tuple[int, int, int]]] = {}

    def measure(self, cut: int, value: bytes, rest: bytes) -> int:
        """Measure one sample of a cut: what comes there and the rest of the sample, encoded.

        Returns the ns that this took.
        """
        all_ns = 0
        for method in METHODS:
            key = cut, method
            taken = self._taken.setdefault(key, [])
            if len(taken) >= _MOST or self._spent_ns.get(key, 0) > self._budget_ns:
                continue
            begun = clock()
            row = self._row(f"{cut:062x}cc", method, value, rest)
            took_ns = clock() - begun
            self._spent_ns[key] = self._spent_ns.get(key, 0) + took_ns
            all_ns += took_ns
            if row is not None:
                taken.append(row)
        return all_ns

    def _row(
        self, name: str, method: str, value: bytes, rest: bytes
    ) -> tuple[int, int, int] | None:
        decoded, template = decode(memoryview(value)), decode(memoryview(rest))
        if not usable(method, entry_parts((), template, encode(decoded)).pictures.values()):
            return None
        self._busy.start()
        random_sources.drawn(random_sources.states())
        parts = compressed(entry_parts((), template, encode(decoded)), method)
        written = self._store.put(name, parts)
        ((keep_ns, _),) = self._busy.stop([reading()])
        fetched = []
        for _ in range(2):  # the least counts, as others disturb
            self._busy.start()
            data = self._store.get(name) if written else None
            CachedSample(memoryview(b"".join(parts)) if data is None else data)
            fetched += self._busy.stop([reading()])
        return sum(map(len, parts)), keep_ns, min(cpu for cpu, _ in fetched)

    def columns(self, cut: int) -> list[dict[str, Any]]:
        """Return for each method that was measured: bytes and times of a cut's first samples."""
        return [
            {
                "method": method,
                "bytes": [row[0] for row in taken],
                "keep_ns": [row[1] for row in taken],
                "fetch_ns": [row[2] for row in taken],
            }
            for method in METHODS
            if (taken := self._taken.get((cut, method)))
        ]
