"""Measures savings and costs of caching a loader's samples at each cut, for `lotus plan`.

It runs in the program, on one thread as in a worker, on samples from the whole data set. Times are
CPU times and blocked times, as on a file server.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile

from ..cache import random_sources
from ..cache.cached_samples import inner_of, key_of
from ..cache.entry_codec import encode
from ..cache.entry_decoder import decode
from ..cache.fingerprints import FingerprintError, versions
from ..cache.loader_refusal import refusal
from ..cache.random_sources import RandomSources
from ..cache.sample_store import SampleStore
from ..cache.transform_place import NoTransformError
from ..common.clocks import clock
from ..common.guard import ask, quiet
from ..common.loaders import loader_description
from ..common.object_attributes import attributes
from ..common.resident_memory import resident_bytes
from . import access_order
from .access_order import UnknownOrderError
from .busy_time import BusyTime, reading
from .compression_bench import CompressionBench
from .cut_checks import OWN_CODE, CheckedCut, CutChecks, SamplePath, encoded
from .file_reads import FileReads
from .input_capture import describe
from .operation_identity import (
    described,
    input_of_own_code,
    key_of_operation,
    key_of_own_code,
    kind_and_bytes,
    qualified_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_MOST_BYTES = 1 << 40  # of the entries of a measurement
_COLLATED = 8  # different samples of a batch
_MOST_COLLATED = 512  # samples of it, for the sake of memory
_LOOKED_AT = 4  # samples whose inputs are looked at where none is timed
_TIMED = 2  # timings per sample; the minimum counts, because other programs disturb


class _CutTimes:
    """The values of one cut for each sample: ns (CPU, blocked) and bytes."""

    def __init__(self) -> None:
        self.before: list[tuple[int, int]] = []
        self.after: list[tuple[int, int]] = []
        self.keep: list[tuple[int, int]] = []
        self.fetch: list[tuple[int, int]] = []
        self.bytes: list[int] = []
        self.value = ""


class OperationCosts:
    """The costs of an operation for each sample: its input (kind, bytes), its least CPU time."""

    def __init__(self) -> None:
        self.inputs: list[tuple[str, int]] = []
        self.cpu_ns: list[int] = []


class CutBench:
    """Measures all cuts of a loader within about `budget_ns`, with files below `folder`.

    Accesses are counted of so many `epochs`.
    """

    def __init__(
        self,
        samples: int,
        epochs: int,
        budget_ns: int,
        folder: str,
        say: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._samples, self._budget_ns, self._folder, self._say = samples, budget_ns, folder, say
        self._epochs = epochs
        self._reads = FileReads()
        self._compressions: CompressionBench | None = None
        self._taken = 0
        self.path: SamplePath | None = None  # once it was found
        self.keys: dict[int, str] = {}  # of the caches of cuts that can be cached
        self._operations: list[OperationCosts] = []  # the first one is the data set's own code
        self._waited_share: float | None = None  # of the time in which samples were timed

    def measure(self, loader: Any, site: str) -> None:
        """Report the data set and its cuts. `site` is where the loader is created."""
        refused = refusal(loader)
        sources = RandomSources()
        path: SamplePath | None = None
        accesses: dict[str, Any] | None = None
        not_followed: str | None = None
        collate_ns: float | None = None
        cuts: list[tuple[CheckedCut, _CutTimes]] = []
        if refused is None:
            sys.modules["torch"].set_num_threads(1)
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            scratch = tempfile.mkdtemp(prefix=".measured-", dir=self._folder)
            try:
                path, cuts = self._measured(loader.dataset, sources, scratch)
                accesses, not_followed = _accesses(loader, self._epochs)
                collate_ns = ask(self._collated, loader, path)
            except FingerprintError as reason:
                refused = str(reason)
            except Exception as error:  # of the program's data set
                refused = f"a sample cannot be made in the main process: {describe(error)}"
            finally:
                sources.put_back()
                shutil.rmtree(scratch, ignore_errors=True)
        self._tell_data_set(loader, site, path, refused, accesses, not_followed, collate_ns)
        self.path = path
        if path is not None:
            self._report_operations(path)
        for cut, times in cuts:
            key = None if path is None else _key(path, cut)
            if key is not None:
                self.keys[cut.number] = key
            self._report(cut, times, key)

    def _tell_data_set(
        self,
        loader: Any,
        site: str,
        path: SamplePath | None,
        refused: str | None,
        accesses: dict[str, Any] | None = None,
        not_followed: str | None = None,
        collate_ns: float | None = None,
    ) -> None:
        self._say(
            {
                "event": "data_set",
                **described_loader(loader, site),
                "path": None if path is None else path.path,
                "operations": [] if path is None else path.names(),
                "refused": refused,
                "files": self._reads.known,
                "unseen_files": self._reads.unseen,
                "samples": self._taken,
                "accesses": accesses,
                "not_followed": not_followed,
                "collate_ns": collate_ns,
            }
        )

    def _measured(
        self, dataset: Any, sources: RandomSources, scratch: str
    ) -> tuple[SamplePath, list[tuple[CheckedCut, _CutTimes]]]:
        length = len(dataset)
        # From the whole data set, because picture sizes may differ between classes.
        indices = random.Random(0).sample(range(length), min(self._samples, length))
        path = SamplePath(dataset, indices[0])
        before = path.states()
        checks = CutChecks(path, sources)
        self._operations = [OperationCosts() for _ in checks.cuts]
        times = [_CutTimes() for _ in checks.cuts]
        store = SampleStore(os.path.join(scratch, "store"), _MOST_BYTES, _ignored)
        busy = BusyTime()
        until = clock() + self._budget_ns // 2
        # All together a quarter of the budget, where each of four methods is tried at each cut.
        share_ns = self._budget_ns // (16 * len(checks.cuts))
        self._compressions = CompressionBench(store, busy, share_ns)
        try:
            for index in indices:
                self._reads.start()
                values, template = checks.check(index)
                self._reads.stop(dataset, index, times=2)
                for cut, value, of_cut in zip(checks.cuts, values, times, strict=True):
                    if cut.why is None and value is not None and template is not None:
                        of_cut.value = of_cut.value or words(decode(memoryview(value)))
                        name = f"{cut.number:064x}"  # of each cut only the last one stays
                        _exchange(store, busy, name, (value, template), of_cut)
                        until += self._compressions.measure(cut.number, value, template)
                self._note_inputs(path, index)
                self._taken += 1
                if clock() > until and self._taken > 1:  # one sample has no interval
                    break
            waited, spent = busy.waiting(), reading()[0]
            for index in indices[: self._taken]:  # one after the other, as in a worker
                self._time(path, sources, busy, index, times)
            self._note_waiting(waited, busy.waiting(), reading()[0] - spent)
        finally:
            busy.close()
        checks.compare_states(before, path.states())
        why = self._reads.refusal()
        if why is not None:
            for cut in checks.cuts:
                cut.refuse(why)
        return path, list(zip(checks.cuts, times, strict=True))

    def look_only(self, loader: Any, site: str) -> None:
        """Report the data set and its operations with the inputs of a few samples; time none."""
        refused, path = refusal(loader), None
        sources = RandomSources()
        try:
            if refused is None:
                length = len(loader.dataset)
                indices = random.Random(0).sample(range(length), min(_LOOKED_AT, length))
                path = SamplePath(loader.dataset, indices[0])
                self._operations = [OperationCosts() for _ in range(len(path.names()) + 1)]
                for index in indices:
                    self._note_inputs(path, index)
        except Exception as error:  # of the program's data set
            refused = f"a sample cannot be made in the main process: {describe(error)}"
        finally:
            sources.put_back()
        self._tell_data_set(loader, site, path, refused)
        if refused is None and path is not None:
            self._report_operations(path)

    def _note_inputs(self, path: SamplePath, index: int) -> None:
        """Make a sample, and note what each operation gets."""
        inputs = [input_of_own_code(path.dataset, index)]

        def look(cut: int, value: object) -> None:
            inputs.append(kind_and_bytes(value))

        path.make(index, look)
        for operation, own in zip(self._operations, inputs, strict=False):
            operation.inputs.append(own)

    def _note_waiting(self, before: int | None, after: int | None, cpu_ns: int) -> None:
        """Note which part of its time the thread has waited for a core: others used them."""
        if before is not None and after is not None:
            self._waited_share = (after - before) / max(after - before + cpu_ns, 1)

    def _report_operations(self, path: SamplePath) -> None:
        transform = None if path.place is None else path.place.transform
        inner, _ = inner_of(path.dataset, 0)
        own = (OWN_CODE, key_of_own_code(path.dataset, transform), inner, type(inner).__name__)
        rows = [own]
        for name, operation in zip(path.names(), path.operations(), strict=True):
            rows.append((name, key_of_operation(operation), operation, described(operation)))
        for (name, key, thing, words_), costs in zip(rows, self._operations, strict=True):
            self._say(
                {
                    "event": "operation",
                    "name": name,
                    "qualified_name": qualified_name(thing),
                    "description": words_,
                    "key": key,
                    "kinds": [kind for kind, _ in costs.inputs],
                    "bytes": [size for _, size in costs.inputs],
                    "cpu_ns": costs.cpu_ns,
                    "waited_share": self._waited_share,
                    "versions": versions(),
                }
            )

    def _time(
        self,
        path: SamplePath,
        sources: RandomSources,
        busy: BusyTime,
        index: int,
        times: list[_CutTimes],
    ) -> None:
        """Time the work before and after each cut, without comparing results."""
        rounds = []
        for turn in range(_TIMED):
            sources.seed(turn)
            readings: list[tuple[int, int]] = []

            def look(cut: int, value: object, readings: Any = readings) -> None:
                readings.append(reading())

            busy.start()
            path.make(index, look)
            readings.append(reading())
            rounds.append(busy.stop(readings))
        for number, operation in enumerate(self._operations):
            ends = [[cpu for cpu, _ in spans] for spans in rounds]
            begun = [each[number - 1] if number else 0 for each in ends]
            spent = [each[number] - start for each, start in zip(ends, begun, strict=True)]
            operation.cpu_ns.append(min(spent))
        for number, of_cut in enumerate(times):
            of_cut.before.append(_least([spans[number] for spans in rounds]))
            after = [
                (spans[-1][0] - spans[number][0], spans[-1][1] - spans[number][1])
                for spans in rounds
            ]
            of_cut.after.append(_least(after))

    def _collated(self, loader: Any, path: SamplePath) -> float | None:
        """Return the least ns in which a sample of a batch is collated; None: its size is unknown.

        The batch is as large as those of the program (at most _MOST_COLLATED samples), of a few
        that come again and again.
        """
        size = loader.batch_size or attributes(loader.batch_sampler).get("batch_size")
        if not isinstance(size, int):
            return None
        count = min(size, len(path.dataset), _MOST_COLLATED)
        made = [path.dataset[index] for index in range(min(count, _COLLATED))]
        batch = (made * count)[:count]
        busy, rounds, until = BusyTime(), [], clock() + self._budget_ns // 8
        try:
            for _ in range(2 * _TIMED):
                busy.start()
                loader.collate_fn(batch)
                rounds += busy.stop([reading()])
                if clock() > until:
                    break
        finally:
            busy.close()
        return sum(_least(rounds)) / count

    def _report(self, cut: CheckedCut, times: _CutTimes, key: str | None) -> None:
        def column(pairs: list[tuple[int, int]], place: int) -> list[int]:
            return [pair[place] for pair in pairs]

        keepable = cut.why is None
        compressions = self._compressions if keepable else None
        self._say(
            {
                "event": "cut",
                "cut": cut.number,
                "name": cut.name,
                "deterministic": cut.same and not cut.draws,
                "draws": sorted(cut.draws),
                "why": cut.why,
                "before_ns": column(times.before, 0),
                "before_blocked_ns": column(times.before, 1),
                "after_ns": column(times.after, 0),
                "after_blocked_ns": column(times.after, 1),
                "bytes": times.bytes if keepable else [],
                "keep_ns": column(times.keep, 0) if keepable else [],
                "fetch_ns": column(times.fetch, 0) if keepable else [],
                "value": times.value,
                "key": key,
                "compressions": [] if compressions is None else compressions.columns(cut.number),
            }
        )


def _accesses(loader: Any, epochs: int) -> tuple[dict[str, Any] | None, str | None]:
    """Return what the epochs of a loader ask for, or else why it is not known."""
    try:
        return access_order.columns(loader, epochs), None
    except UnknownOrderError as reason:
        return None, str(reason)
    except Exception as error:  # of the program's data set or lists
        return None, describe(error)


def _key(path: SamplePath, cut: CheckedCut) -> str | None:
    """Return the key of a cut's cache; None: it cannot be cached."""
    if cut.why is not None:
        return None
    try:
        return key_of(path.dataset, path.path, cut.number)
    except (FingerprintError, NoTransformError):
        return None


def _exchange(
    store: SampleStore,
    busy: BusyTime,
    name: str,
    encoded_parts: tuple[bytes, bytes],
    times: _CutTimes,
) -> None:
    """Write the value at a cut and the rest of the sample to the store, and read them again.

    If the store has no space left, as in a small /dev/shm, the times lack only its copies.
    """
    value, remainder = (decode(memoryview(part)) for part in encoded_parts)
    busy.start()
    random_sources.drawn(random_sources.states())  # as each sample that is cached is looked at
    head = encoded(remainder)
    parts = [head, *encode(value)]
    stored = store.put(name, parts)
    times.keep += busy.stop([reading()])
    times.bytes.append(sum(len(part) for part in parts))
    del value, remainder
    rounds: list[tuple[int, int]] = []
    for _ in range(_TIMED):
        busy.start()
        data = store.get(name) if stored else None
        if data is None:
            data = memoryview(b"".join(parts))
        decode(data[: len(head)])
        decode(data[len(head) :])
        rounds += busy.stop([reading()])
    times.fetch.append(_least(rounds))


def _ignored(note: str) -> None:
    """Ignore a note of the store."""


def _least(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return min(cpu for cpu, _ in pairs), min(blocked for _, blocked in pairs)


def described_loader(loader: Any, site: str) -> dict[str, Any]:
    """Return the loader's identity and setting, and the program's batches."""
    workers = loader.num_workers
    return {
        "loader": {
            "number": None,
            "call_site": site or None,
            "dataset": type(loader.dataset).__name__,
            "dataset_length": loader_description.length(loader),
            "sampler": loader_description.sampler(loader),
        },
        "setting": {
            "num_workers": workers,
            "prefetch_factor": loader.prefetch_factor if workers else None,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(loader.persistent_workers),
        },
        "length": loader_description.length(loader),
        "batch_size": loader.batch_size,
        "num_workers": workers,
        "torch": str(sys.modules["torch"].__version__),
        "rss_bytes": _resident_bytes(),
    }


def words(value: Any) -> str:
    """Describe a value: `picture RGB 500x375`, `Tensor uint8 3x224x224`, else its type."""
    kind = type(value)
    if hasattr(value, "getbands"):  # a picture of Pillow's
        return f"picture {value.mode} {'x'.join(map(str, value.size))}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"{kind.__name__} {str(value.dtype).removeprefix('torch.')} {shape}"
    return kind.__name__


def _resident_bytes() -> int | None:
    with quiet(OSError, ValueError):
        return resident_bytes("self")
    return None
