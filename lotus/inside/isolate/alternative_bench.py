"""Tries alternatives to operations on the operations' own inputs, for `lotus advise`.

Alternatives are files in a folder of lotus: see lotus/inside/alternatives/__init__.py. They run on
copies of the inputs, in this process and on one thread, alternating with the operations that they
replace. Times are CPU times of this thread. Results are compared with the same random numbers.
"""

from __future__ import annotations

import os
import random
import sys
import time
from functools import partial

from ..common import alternative_files
from ..common.clocks import clock
from ..common.loaders.code_origin import is_installed
from ..common.loaders.worker_threads import set_threads
from .input_capture import COLLATE, LOADER, InputCopyError, describe, fresh
from .peak_memory import PeakMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .input_capture import Call, Catcher

_FEWEST, _MOST = 4, 30  # rounds
_LEAST_NS = 20_000_000  # of a round
_WEIGHED = 5  # inputs on which memory is measured
_MOST_FILES = 500
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries


class Operation:
    """An operation of the pipeline with captured inputs, in the form that alternatives expect."""

    def __init__(self, name: str, calls: Sequence[Call]) -> None:
        self.name = name
        self._function = calls[0].function
        self._arguments = [call.arguments for call in calls]
        self.count = sum(call.count for call in calls)  # of calls that these stand for
        self.transform = getattr(self._function, "__self__", self._function)
        self.inputs = [
            args[0]
            for call in calls
            for args, kwargs in [call.arguments]
            if len(args) == 1 and not kwargs
        ]

    @property
    def arguments(self) -> Sequence[Any]:
        """Return all captured inputs, as (args, kwargs)."""
        return self._arguments

    def run(self, value: Any) -> Any:
        """Call the operation."""
        return self._function(value)

    def call(self, arguments: Any) -> Any:
        """Call the operation with all of its arguments."""
        args, kwargs = arguments
        return self._function(*args, **kwargs)

    def kind(self) -> str:
        """Return the name of its class, or of the function."""
        transform = self.transform
        return str(getattr(transform, "__name__", type(transform).__name__))

    def place(self) -> str | None:
        """Return FILE:LINE of its code, if that is the program's own."""
        function = getattr(self._function, "__func__", self._function)
        code = getattr(function, "__code__", None)
        if code is None or not _INSTALLED.isdisjoint(code.co_filename.split(os.sep)):
            return None
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


class AlternativeBench:
    """Tries alternatives of a folder, all or those in `names`, for about `budget_ns` each."""

    def __init__(
        self,
        folder: str,
        budget_ns: int,
        say: Callable[[Mapping[str, object]], None],
        names: Sequence[str] | None = None,
    ) -> None:
        self._folder, self._budget_ns, self._say = folder, budget_ns, say
        available = alternative_files.names(folder)
        self._names = [name for name in available if names is None or name in names]
        self._chance = random.Random(0)  # not the program's

    def try_all(self, catcher: Catcher, tell: Callable[..., None] | None = None) -> None:
        """Report the costs of all operations, then what each alternative does.

        `tell` gets an event `trying` before each, with its `title`, and how many there are.
        """
        set_threads(1)
        names = catcher.in_order()
        operations = [Operation(name, catcher.calls[name]) for name in names]
        # Top-level operations of the sample: not nested ones, and not those of its target.
        top_level = [each for each in operations if {"/", ":"}.isdisjoint(each.name)]
        kinds = [each.kind() for each in top_level if each.name != LOADER]
        self._say({"event": "code", "kinds": kinds, "files": program_files()})
        calls = catcher.calls_a_sample()
        further = [
            name for name in (LOADER, COLLATE) if name not in names and catcher.calls.get(name)
        ]
        costs = [*operations, *(Operation(name, catcher.calls[name]) for name in further)]
        steps = len(costs) + len(self._names)
        for number, operation in enumerate(costs):
            if tell is not None:
                tell("trying", title=operation.name, number=number, steps=steps)
            try:
                (ns,) = self._round([operation.call], operation.arguments)
            except Exception as error:
                self._untried(operation.name, "", f"it raised {describe(error)}")
                continue
            per_call = ns / operation.count
            self._say(
                {
                    "event": "operation",
                    "operation": operation.name,
                    "cpu_ns": per_call * calls.get(operation.name, 1.0),
                    "place": operation.place(),
                    "decoder": operation.kind() if operation.name in catcher.loads else None,
                }
            )
        for number, name in enumerate(self._names, len(costs)):
            if tell is not None:
                tell("trying", title=name, number=number, steps=steps)
            self._try_file(name, operations)

    def _try_file(self, name: str, operations: Sequence[Operation]) -> None:
        title = name
        try:
            module = alternative_files.load(name, self._folder)
            title = module.TITLE
            words: dict[str, Any] = {"title": title, "change": module.CHANGE}
            words |= {"known": module.KNOWN, "applicable": hasattr(module, "stand_ins")}
            words["exact"] = getattr(module, "EXACT", False)
            words["edits"] = module.edits(operations) if hasattr(module, "edits") else []
            for offer in offers_of(module, operations):
                self._try(name, words, *offer)
        except ImportError as error:
            self._untried(name, title, f"{error.name} is not installed")
        except InputCopyError as error:
            self._untried(name, title, str(error))
        except Exception as error:  # the program's operations run in it
            self._untried(name, title, f"it raised {describe(error)}")

    def _untried(self, name: str, title: str, why: str) -> None:
        self._say({"event": "untried", "name": name, "title": title, "why": why})

    def _try(
        self,
        name: str,
        words: Mapping[str, Any],
        replaced: Sequence[str],
        before: Callable[[Any], Any],
        after: Callable[[Any], Any],
        inputs: Sequence[Any],
    ) -> None:
        if not inputs:
            self._untried(name, words["title"], "no captured input fits")
            return
        changes = [
            difference(_seeded(before, number, value), _seeded(after, number, value))
            for number, value in enumerate(inputs)
        ]
        until = clock() + self._budget_ns
        rounds: list[list[float]] = []
        while len(rounds) < _MOST and (len(rounds) < _FEWEST or clock() < until):
            rounds.append(self._round([before, after], inputs))
        self._say(
            {
                "event": "alternative",
                "name": name,
                **words,
                "replaces": list(replaced),
                "samples": sum(len(value) if isinstance(value, list) else 1 for value in inputs),
                "rounds": rounds,
                "changes": changes,
                "peaks": self._peaks([before, after], inputs),
            }
        )

    def _peaks(
        self, functions: Sequence[Callable[[Any], Any]], inputs: Sequence[Any]
    ) -> list[int] | None:
        """Return the median peak memory in bytes of each function; None if unknown."""
        memory, medians = PeakMemory(), []
        for function in functions:
            peaks = [memory.of(function, fresh(value)) for value in inputs[:_WEIGHED]]
            measured = sorted(peak for peak in peaks if peak is not None)
            if len(measured) < len(peaks):
                return None
            medians.append(measured[len(measured) // 2])
        return medians

    def _round(
        self, functions: Sequence[Callable[[Any], Any]], inputs: Sequence[Any]
    ) -> list[float]:
        """Return CPU nanoseconds of each function for all inputs, run in random order."""
        cpu_ns = [0.0] * len(functions)
        repeats = 0
        began = clock()
        while not repeats or clock() - began < _LEAST_NS:
            order = self._chance.sample(range(len(functions)), len(functions))
            for place in order:
                values = [fresh(value) for value in inputs]
                start = time.thread_time_ns()
                # Results stay alive, as in the pipeline.
                results = [functions[place](value) for value in values]
                cpu_ns[place] += time.thread_time_ns() - start
                del results
            repeats += 1
        return [ns / repeats for ns in cpu_ns]


def offers_of(module: Any, operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the offers of an alternative; stand-ins are converted to offers."""
    if not hasattr(module, "stand_ins"):
        yield from module.offers(operations)
        return
    for first, count, steps in module.stand_ins(operations):
        replaced = operations[first : first + count]
        names = tuple(operation.name for operation in replaced)
        before = partial(alternative_files.in_turn, [operation.run for operation in replaced])
        yield names, before, partial(alternative_files.in_turn, steps), replaced[0].inputs


def _seeded(function: Callable[[Any], Any], seed: int, value: Any) -> Any:
    """Call a function on a copy of a value, with random numbers of this seed."""
    sys.modules["torch"].manual_seed(seed)
    random.seed(seed)
    return function(fresh(value))


def difference(before: Any, after: Any) -> dict[str, object]:
    """Describe two results and their difference; None: they cannot be compared."""
    first, second = _tensor(before), _tensor(after)
    description: dict[str, object] = {
        "before": _words(before, first),
        "after": _words(after, second),
    }
    description["bytes"] = [None if each is None else each.nbytes for each in (first, second)]
    if first is None or second is None or first.shape != second.shape:
        return {**description, **dict.fromkeys(("equal", "largest", "mean", "square", "range"))}
    torch: Any = sys.modules["torch"]
    apart = (first.to(torch.float64) - second.to(torch.float64)).abs()
    reference = first.to(torch.float64)
    return {
        **description,
        "square": float(apart.square().mean()) if apart.numel() else 0.0,
        "equal": bool(first.dtype == second.dtype and torch.equal(first, second)),
        "largest": float(apart.max()) if apart.numel() else 0.0,
        "mean": float(apart.mean()) if apart.numel() else 0.0,
        "range": float(reference.max() - reference.min()) if reference.numel() else 0.0,
    }


def _tensor(value: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.cpu() if value.is_cuda else value
    if hasattr(value, "getbands"):  # a picture of Pillow's
        value = sys.modules["numpy"].array(value)
    if hasattr(value, "__array_interface__"):
        return torch.as_tensor(value)
    return None


def _words(value: Any, tensor: Any) -> str:
    if hasattr(value, "getbands"):
        return f"picture {value.mode}"
    if tensor is None:
        return type(value).__name__
    layout = "" if tensor.is_contiguous() else ", strided"
    return f"{type(value).__name__} {str(tensor.dtype).removeprefix('torch.')}{layout}"


def program_files() -> list[str]:
    """Return the files of the program's own modules."""
    files = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or is_installed(path):
            continue
        if not path.startswith(_OURS):
            files.append(os.path.abspath(path))
    return list(dict.fromkeys(files))[:_MOST_FILES]
