"""Runs each operation of the program's pipeline by itself, for `lotus map build`.

Where the program starts to iterate its loader, some samples are fetched in its main process and the
real input of each operation is kept. Then each operation runs on copies of its inputs, in runs of
warm-up, gap and bucket, while perf samples this process. The times of the buckets go to
isolation.jsonl in the run directory; then the program is ended.

All of it happens in the program's own process: a forked child cannot use OpenMP's threads, and a
spawned one would not have the program's objects.

The end is `os._exit`: SystemExit would run the program's `finally` blocks and exit handlers, which
may save a model that was never trained over one that was.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import json
import operator
import os
import random
import select
import sys
import threading

from . import clock
from .guard import hook
from .install import Tracer
from .operations import Finder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn

NAME = "isolation.jsonl"
LOADER, COLLATE = "Loader", "collate"
_OFF, _TAKE, _REPLAY = range(3)
# A bucket lasts at least this long, so that many samples of perf fall into it.
_LEAST_BUCKET_NS = 50_000_000
# The calls of a bucket come in bursts, before each of which their inputs are copied.
_BURST_NS, _MOST_BURST, _MOST_LARGE = 2_000_000, 128, 16
_LARGE_COPY_NS = 50_000  # who takes longer to copy is large
_WARM_SHARE = 0.1  # of the calls of a bucket
_LONGEST = 300  # characters of an error


class Settings:
    """What lotus asked for: JSON in LOTUS_ISOLATE."""

    def __init__(self, text: str) -> None:
        asked = json.loads(text)
        self.exchange: str = asked["exchange"]  # folder of the pipes `ready` and `go`
        self.samples: int = asked["samples"]
        self.runs: int = asked["runs"]
        self.needed: int = asked["needed"]  # calls until a short function is caught
        self.gap_ns: int = asked["gap_ns"]
        self.budget_ns: int = asked["budget_ns"]  # for each operation
        self.loader: int | None = asked["loader"]  # by first `iter()`; None: the largest


class CannotCopy(Exception):
    """An input that cannot be had twice."""


def fresh(thing: Any) -> Any:
    """A copy of an input that shares nothing that an operation may change.

    An image that Pillow has not decoded yet is opened anew: to decode it is the operation's work.
    Raises CannotCopy.
    """
    memo: dict[int, Any] = {}
    try:
        for image in _undecoded(thing):
            memo[id(image)] = _open_anew(image)
        return copy.deepcopy(thing, memo)
    except Exception as error:
        raise CannotCopy(f"its input cannot be copied: {describe(error)}") from error


def _undecoded(thing: Any, depth: int = 4) -> Iterator[Any]:
    kind = type(thing)
    if str(kind.__module__).startswith("PIL.") and getattr(thing, "tile", None):
        yield thing
    elif depth and kind in (tuple, list):
        for item in thing:
            yield from _undecoded(item, depth - 1)
    elif depth and kind is dict:
        yield from _undecoded(list(thing.values()), depth - 1)


def _open_anew(image: Any) -> Any:
    opened = image.fp
    path = image.filename or getattr(opened, "name", "")
    if isinstance(opened, io.BytesIO):
        again: Any = io.BytesIO(opened.getvalue())
    elif path and not isinstance(path, int):
        again = path
    else:
        raise ValueError("an image that is not decoded yet, from an unknown file")
    return sys.modules["PIL.Image"].open(again)


def describe(error: BaseException) -> str:
    """One line for an error of the program; runs its `__str__`, which may fail."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return " ".join(text.split())[:_LONGEST]


class Call:
    """One call of an operation with the input that it had; `count` says for how many it stands."""

    def __init__(self, function: Callable[..., Any], given: Any, count: int = 1) -> None:
        self.function = function
        self.given = given  # (args, kwargs)
        self.count = count

    def prepare(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        args, kwargs = fresh(self.given)
        return self.function, args, kwargs


class Catcher:
    """Stands where a recorder does in `Finder`: keeps the inputs of operations, not their times."""

    def __init__(self, samples: int, say: Callable[[Mapping[str, object]], None]) -> None:
        self.samples = samples
        self.say = say
        self.timers = self  # of which only `operation` is used
        self.mode = _OFF
        self.names: list[str] = []  # an operation's number is its place here plus one
        self.calls: dict[str, list[Call]] = {}
        self.failed: dict[str, str] = {}  # operation -> why it cannot be isolated
        self.loads: set[str] = set()  # operations that read a sample
        self.called: dict[str, int] = {}  # how often in `sampled` samples
        self.sampled = 0
        self.batch = 1  # samples in a batch
        self._called_now: list[str] = []
        self.missed: set[str] = set()
        self.answers: dict[int, list[Any]] = {}  # of the sample in hand, by operation
        self.unanswered = ""
        self._error: BaseException | None = None
        self._here = threading.local()

    def define(self, name: str, parent: int = 0, index: int = 0, kind: str = "transform") -> int:
        if kind == "loader":
            self.loads.add(name)
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name) + 1

    def event(self, event: Mapping[str, object]) -> None:
        self.say(event)

    def finish(self) -> None:
        pass

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        def __call__(self_: object, /, *args: Any, **kwargs: Any) -> Any:
            if self.mode == _OFF:
                return original(*args, **kwargs)
            if self.mode == _TAKE:
                return self._take(original, number, args, kwargs)
            return self._replay(original, number, args, kwargs)

        return hook(__call__)

    def _take(
        self,
        original: Callable[..., Any],
        number: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        name = self.names[number - 1]
        self._called_now.append(name)
        kept = self._keep(name, original, args, kwargs)
        depth = getattr(self._here, "depth", 0)
        self._here.depth = depth + 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if kept is not None:
                self.calls[name].remove(kept)
            self._blame(name, error)
            raise
        finally:
            self._here.depth = depth
        if depth == 0 and not self.unanswered:
            try:
                self.answers.setdefault(number, []).append(fresh(result))
            except CannotCopy as error:
                self.unanswered = f"what {name} returns: {error}"
        return result

    def _keep(
        self, name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        calls = self.calls.setdefault(name, [])
        if len(calls) >= self.samples:
            return None
        try:
            kept = Call(original, fresh((args, kwargs)))
        except CannotCopy as error:
            self.failed.setdefault(name, str(error))
            return None
        calls.append(kept)
        return kept

    def _blame(self, name: str, error: BaseException) -> None:
        """The innermost operation that an exception passed is the one that failed."""
        if self._error is not error:
            self._error = error
            self.say({"event": "raised", "operation": name, "error": describe(error)})
            self.failed.setdefault(name, f"it raised {describe(error)}")

    def _replay(
        self,
        original: Callable[..., Any],
        number: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        answers = self.answers.get(number)
        if answers:
            return answers.pop()
        self.missed.add(self.names[number - 1])
        return original(*args, **kwargs)

    # -- the data set ----------------------------------------------------------------------

    def sample(self, fetch: Callable[..., Any], *args: Any, count: int = 1) -> tuple[bool, Any]:
        """Fetch one sample and keep the inputs of its operations; (whether it came, sample)."""
        self.mode, self.answers, self.unanswered, self._called_now = _TAKE, {}, "", []
        try:
            data = fetch(*args)
        except Exception as error:
            self._blame(LOADER, error)
            return False, None
        finally:
            self.mode = _OFF
        self.sampled += count
        for name in self._called_now:
            self.called[name] = self.called.get(name, 0) + 1
        if self.unanswered:
            self.failed.setdefault(LOADER, self.unanswered)
        else:
            answers = {number: found[::-1] for number, found in self.answers.items()}
            given: Any = ((args, answers), {})
            self.calls.setdefault("", []).append(
                Call(functools.partial(self._replayed, fetch), given, count)
            )
        return True, data

    def _replayed(self, fetch: Callable[..., Any], args: Any, answers: dict[int, Any]) -> Any:
        """The data set's own code: each operation only returns what it returned before."""
        self.answers, self.mode = answers, _REPLAY
        try:
            return fetch(*args)
        finally:
            self.mode = _OFF

    def collated(self, collate: Callable[..., Any], data: Any, size: int) -> None:
        """Keep what `collate` gets: a batch of so many samples."""
        self.batch = max(size, self.batch)
        if len(self.calls.setdefault(COLLATE, [])) < self.samples and COLLATE not in self.failed:
            try:
                self.calls[COLLATE].append(Call(collate, fresh(((data,), {}))))
            except CannotCopy as error:
                self.failed[COLLATE] = str(error)

    def calls_a_sample(self) -> dict[str, float]:
        """How often each operation was called for one sample, on average."""
        found = {name: count / max(1, self.sampled) for name, count in self.called.items()}
        return {LOADER: 1.0, **found, COLLATE: 1 / self.batch}

    def take(self, loader: Any) -> None:
        """Fetch at least `samples` samples and one batch of a loader, as its workers would."""
        dataset = loader.dataset
        Finder(self, {}).data_set(dataset)  # type: ignore[arg-type]
        if loader._dataset_kind == 1:
            self._take_stream(loader, dataset)
        else:
            self._take_items(loader, dataset)
        own = self.calls.pop("", [])
        if not any(self.calls.get(name) for name in self.loads):
            self.calls[LOADER] = own
            if not own:
                self.failed.setdefault(LOADER, "no sample came")
        if not self.calls.get(COLLATE):
            self.failed.setdefault(COLLATE, "no batch came")
        for name in self.names:
            if not self.calls.get(name):
                self.failed.setdefault(name, f"it was not called in {self.samples} samples")

    def _take_items(self, loader: Any, dataset: Any) -> None:
        one = functools.partial(operator.getitem, dataset)
        many = loader._auto_collation and getattr(dataset, "__getitems__", None)
        taken = lost = 0
        for index in loader._index_sampler:
            batch: Any = []
            if many or not loader._auto_collation:
                size = len(index) if many else 1
                came, batch = self.sample(many or one, index, count=size)
                taken, lost = taken + came * size, lost + (not came)
            else:
                for item in index:
                    # Past what was asked for, only to fill the batch.
                    came, data = (
                        self.sample(one, item) if taken < self.samples else _plain(one, item)
                    )
                    taken, lost = taken + came, lost + (not came)
                    if came:
                        batch.append(data)
                    elif lost >= self.samples:
                        break
                came = bool(batch)
            if came:
                whole = len(batch) if loader._auto_collation and not many else size
                self.collated(loader.collate_fn, batch, whole)
            if taken >= self.samples or lost >= self.samples:
                break

    def _take_stream(self, loader: Any, dataset: Any) -> None:
        came, data = self.sample(_first, dataset, self.samples, count=self.samples)
        if self.calls.get(""):
            # The data set stays itself, and of its samples there may be fewer.
            call = self.calls[""][0]
            answers = call.given[0][1]
            count = max(1, len(data))
            fetch = functools.partial(_first, dataset, count)
            call.function = functools.partial(self._replayed, fetch)
            call.given, call.count = (((), answers), {}), count
        self.sampled = len(data or ())
        if not came or not data:
            if came:
                self.failed.setdefault(LOADER, "it gives no sample")
                self.calls.pop("", None)
            return
        if not loader._auto_collation:
            for item in data:
                self.collated(loader.collate_fn, item, 1)
            return
        size = loader.batch_size or len(data)
        if len(data) < size:
            came, more = _plain(_first, dataset, size)
            data = more if came else data
        for start in range(0, len(data), size):
            self.collated(loader.collate_fn, data[start : start + size], size)


def _plain(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    try:
        return True, function(*args)
    except Exception:
        return False, None


def _first(dataset: Iterable[Any], count: int) -> list[Any]:
    return list(itertools.islice(iter(dataset), count))


def plan(
    call_ns: int, copy_ns: int, needed: int, runs: int, gap_ns: int, budget_ns: int
) -> tuple[int, int]:
    """How many runs, and how many calls in the bucket of each, fit into the budget.

    Wanted are `runs` runs of `needed` calls; there are fewer calls where the time is short, then
    fewer runs. The gaps take at most half of the time.
    """
    runs = max(1, min(runs, budget_ns // (2 * gap_ns) if gap_ns else runs))
    each = max(1, call_ns + copy_ns)
    left = int((budget_ns - runs * gap_ns) / (1 + _WARM_SHARE))
    if left < 2 * runs * each:  # with one call to warm up
        runs = max(1, min(runs, budget_ns // (gap_ns + 2 * each)))
        return runs, 1
    wanted = max(needed, _LEAST_BUCKET_NS // max(1, call_ns))
    return runs, max(1, min(wanted, left // (runs * each)))


class Bench:
    """Runs operations in buckets and says when."""

    def __init__(self, settings: Settings, say: Callable[[Mapping[str, object]], None]) -> None:
        self.settings = settings
        self.say = say
        # Bursts of changing length: a rhythm could fall in with perf's. Not the program's numbers.
        self.random = random.Random(0)

    def measure(self, name: str, calls: list[Call]) -> None:
        """All runs of one operation. Raises what the operation raises, and CannotCopy."""
        settings = self.settings
        deadline = clock() + settings.budget_ns
        copy_ns, call_ns = self._try(calls, clock() + settings.budget_ns // 4)
        left = max(1, deadline - clock())
        runs, size = plan(call_ns, copy_ns, settings.needed, settings.runs, settings.gap_ns, left)
        burst = min(_MOST_BURST, max(1, _BURST_NS // max(1, call_ns)))
        if copy_ns > _LARGE_COPY_NS:
            burst = min(burst, _MOST_LARGE)
        source = itertools.cycle(calls)
        for run in range(runs):
            if run and clock() >= deadline:
                break
            self._burst(source, max(1, min(len(calls), int(size * _WARM_SHARE))))
            self._rest(settings.gap_ns)
            rows: list[tuple[int, int, int]] = []
            done = 0
            while done < size and (not rows or clock() < deadline):
                most = min(burst, size - done)
                many = self.random.randint(max(1, most // 2), most)
                rows.append(self._burst(source, many))
                done += many
            self.say(
                {
                    "event": "run",
                    "operation": name,
                    "run": run,
                    "pid": os.getpid(),
                    "tid": threading.get_native_id(),
                    "intervals": rows,
                }
            )

    def _try(self, calls: list[Call], deadline: int) -> tuple[int, int]:
        """Each input once; ns of a copy and of a call."""
        copies, times = [], []
        for call in calls:
            start = clock()
            function, args, kwargs = call.prepare()
            ready = clock()
            function(*args, **kwargs)
            copies.append(ready - start)
            times.append(clock() - ready)
            if clock() > deadline:
                break
        middle = len(times) // 2  # the first call is often slower than all others
        return sorted(copies)[middle], sorted(times)[middle]

    def _burst(self, source: Iterator[Call], many: int) -> tuple[int, int, int]:
        """`many` calls on fresh copies; start, end and how many calls they stand for."""
        chosen = list(itertools.islice(source, many))
        prepared = [call.prepare() for call in chosen]
        # What is returned lives on, as in the pipeline: to free it is not the operation's work.
        results: list[Any] = [None] * many
        start = clock()
        for place, (function, args, kwargs) in enumerate(prepared):
            results[place] = function(*args, **kwargs)
        end = clock()
        return start, end, sum(call.count for call in chosen)

    def _rest(self, gap_ns: int) -> None:
        if gap_ns:
            select.select((), (), (), gap_ns / 1e9)


class Link:
    """The two pipes to lotus, which waits outside. Raises OSError where it has gone."""

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._ready = os.open(
            os.path.join(exchange, "ready"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )

    def claim(self) -> bool:
        """Whether this process is the first of the program (the first of its ranks) to ask."""
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(os.path.join(self._exchange, "claimed"), flags, 0o600))
        except FileExistsError:
            return False
        return True

    def tell(self, event: str) -> None:
        os.write(self._ready, (json.dumps({"event": event, "pid": os.getpid()}) + "\n").encode())

    def wait(self) -> None:
        """Until lotus says go, or has gone."""
        go = os.open(os.path.join(self._exchange, "go"), os.O_RDONLY | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(go, select.POLLIN)
        poll.register(self._ready, 0)  # an error: nobody reads any more
        found = dict(poll.poll())
        os.close(go)
        if go not in found:
            raise OSError("lotus has gone")

    def wait_for_end(self) -> None:
        poll = select.poll()
        poll.register(self._ready, 0)
        poll.poll()


class Isolator(Tracer):
    """In place of the tracer: waits for the loader, isolates its operations, ends the program."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.settings = Settings(environ["LOTUS_ISOLATE"])
        self.path = os.path.join(environ["LOTUS_RUN"], NAME)
        self.catcher = Catcher(self.settings.samples, self.say)
        self.busy = False
        self.iterated: list[Any] = []

    @property
    def recorder(self) -> Any:
        return self.catcher

    def say(self, event: Mapping[str, object]) -> None:
        """Append one line to the run directory."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            data = (json.dumps(event) + "\n").encode()
            if os.write(fd, data) != len(data):
                raise OSError("the disk is full (a write was cut short)")
        finally:
            os.close(fd)

    def _hook_torch(self, module: Any) -> None:
        original = module.DataLoader._get_iterator

        def _get_iterator(loader: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.busy and module._utils.worker.get_worker_info() is None:
                late, self.late = self.late, []
                for function in late:
                    self.run(function, sys.modules["__main__"])
                chosen = self.choose(loader, module.DataLoader)
                if chosen is not None:
                    self.busy = True
                    self.work(chosen)  # does not return
            return original(loader, *args, **kwargs)

        self._replace(module.DataLoader, "_get_iterator", hook(_get_iterator))

    def choose(self, loader: Any, kind: type) -> Any:
        """The loader to isolate, now that `loader` is iterated; None: one still to come."""
        if self.settings.loader is None:
            import gc

            # By its type: to ask some objects for their class runs code. Of equals the one that is
            # iterated.
            there = [loader, *(one for one in gc.get_objects() if issubclass(type(one), kind))]
            return max(there, key=_samples_of)
        if not any(one is loader for one in self.iterated):
            self.iterated.append(loader)
        number = next(n for n, one in enumerate(self.iterated) if one is loader)
        return loader if number == self.settings.loader else None

    def work(self, loader: Any) -> None:
        try:
            link = Link(self.settings.exchange)
        except OSError:  # another Python of the program was isolated, and lotus needs no more
            end(0)
        try:
            if link.claim():
                self._isolate(loader, link)
                link.tell("done")
            else:
                link.wait_for_end()
        except Exception as error:
            self.fault(error)
        end(0)

    def fault(self, error: Exception) -> None:
        """Say so and end the program: what cannot be isolated is not to train for hours instead."""
        try:  # noqa: SIM105 - the disk may be full
            self.say({"event": "fault", "error": describe(error)})
        except OSError:
            pass
        end(1)

    def _isolate(self, loader: Any, link: Link) -> None:
        catcher = self.catcher
        threads = [thread.native_id for thread in threading.enumerate()]
        if loader.num_workers > 0:
            sys.modules["torch"].set_num_threads(1)  # as torch does in each worker
        catcher.take(loader)
        described = {
            "dataset": type(loader.dataset).__name__,
            "batch_size": loader.batch_size,
            "num_workers": loader.num_workers,
            "inputs": {name: len(calls) for name, calls in catcher.calls.items()},
            "calls_a_sample": catcher.calls_a_sample(),
            "threads": threads,  # of the program's own: what they do is no operation's
        }
        self.say({"event": "taken", "pid": os.getpid(), **described})
        link.tell("ready")
        link.wait()
        for name, why in catcher.failed.items():
            if not catcher.calls.get(name):
                self.say({"event": "skipped", "operation": name, "why": why})
        bench = Bench(self.settings, self.say)
        for name, calls in catcher.calls.items():
            try:
                if calls:
                    bench.measure(name, calls)
            except CannotCopy as error:
                self.say({"event": "skipped", "operation": name, "why": str(error)})
            except Exception as error:
                why = f"it raised {describe(error)}"
                self.say({"event": "skipped", "operation": name, "why": why})
            calls.clear()  # its inputs need memory
        for name in sorted(catcher.missed):
            text = f"{name} was called anew in {LOADER}, whose functions may be {name}'s too"
            self.say({"event": "note", "text": text})


def _samples_of(loader: Any) -> int:
    try:
        return len(loader.dataset)
    except Exception:  # of a stream, or code of the program
        return -1


def end(code: int) -> NoReturn:
    """End the program at once; its own processes with it."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - closed, or whatever the program put there
            stream.flush()
        except Exception:
            pass
    multiprocessing: Any = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.terminate()
    os._exit(code)


def install(environ: Mapping[str, str]) -> Isolator:
    """Wait for the loader of this process."""
    isolator = Isolator(environ)
    isolator.install()
    return isolator


def enter(path: str) -> None:
    """What the sitecustomize at `path` calls, after the one of `lotus trace` has run.

    Takes the hooks of the trace out, puts its own in, and runs the sitecustomize that both hide.
    """
    from . import install as tracing

    if tracing.active is not None:
        tracing.active.uninstall()
    if os.environ.get("LOTUS_ISOLATE"):
        tracing.active = install(dict(os.environ))
    import importlib.machinery
    import importlib.util

    ours = (os.path.dirname(path), os.path.join(os.path.dirname(__file__), "sitecustomize"))
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") not in ours]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
