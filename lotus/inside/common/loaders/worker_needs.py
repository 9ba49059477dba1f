"""Finds code of a program that works in workers only, which a loader without workers would break.

It reads code objects; none of the program's code runs.
"""

from __future__ import annotations

import functools
import itertools
import os
from types import CodeType, FunctionType, MethodType

from ..guard import is_our_code
from ..object_attributes import attributes
from .code_origin import is_installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# All that a worker_init_fn names which seeds generators and sets threads.
_SEEDING = frozenset(
    "torch utils data get_worker_info initial_seed seed id manual_seed worker_id num_workers np "
    "numpy random default_rng RandomState set_num_threads set_num_interop_threads cv2 "
    "setNumThreads setUseOptimized ocl setUseOpenCL os environ threadpool_limits threadpoolctl "
    "int range print nice getpid warnings filterwarnings simplefilter "
    "logging getLogger setLevel signal SIGINT SIG_IGN SIGTERM SIG_DFL base_seed worker_seed "
    "SeedSequence generate_state PCG64 info worker_info".split()
)
_ASKS = "get_worker_info"
_NONE_TESTS = ("IS_OP", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
_TRUTH_TESTS = ("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "JUMP_IF_FALSE_OR_POP",
                "JUMP_IF_TRUE_OR_POP", "UNARY_NOT")  # fmt: skip
_DEEPEST, _MOST_CODES = 8, 500


def workers_needed_at(loader: Any) -> str:
    """Return where the program's code needs workers, as `file:line`; "" if nowhere it was seen to.

    Only in workers runs a `worker_init_fn`, which may prepare what samples are made from; one that
    seeds generators and sets threads prepares nothing. And only there a data set gets an answer of
    `get_worker_info()`, for whose absence its code may have no test.
    """
    values = attributes(loader)
    prepares = _code_of(values.get("worker_init_fn"))
    if prepares is not None and _is_programs(prepares):
        prepares_more = any(not _SEEDING.issuperset(_names(code)) for code in _codes(prepares))
        if prepares_more:
            return _place(prepares)
    dataset = values.get("dataset")
    for _ in range(_DEEPEST):
        for code in _asking(type(dataset)):
            return _place(code)
        dataset = attributes(dataset).get("dataset")
    return ""


def _asking(kind: type) -> Iterator[CodeType]:
    """Yield methods of the program that use `get_worker_info()` and do not test it for None."""
    for cls in kind.__mro__:
        for function in vars(cls).values():
            code = _code_of(function)
            if code is None or not _is_programs(code):
                continue
            for each in _codes(code):
                if _ASKS in each.co_names and not _tests_none(each):
                    yield each


def _is_programs(code: CodeType) -> bool:
    return not (is_our_code(code) or is_installed(code.co_filename))


def _code_of(function: Any) -> CodeType | None:
    """Return the code of a function, method, `partial` or object that can be called."""
    for _ in range(_DEEPEST):
        if type(function) is functools.partial:
            function = function.func
        elif type(function) in (MethodType, classmethod, staticmethod):
            function = function.__func__
        elif type(function) is FunctionType:
            return function.__code__
        else:
            function = next(
                (
                    vars(cls)["__call__"]
                    for cls in type(function).__mro__
                    if "__call__" in vars(cls)
                ),
                None,
            )
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions within it."""
    left = [code]
    for _ in range(_MOST_CODES):
        if not left:
            return
        code = left.pop()
        yield code
        left += [each for each in code.co_consts if isinstance(each, CodeType)]


def _names(code: CodeType) -> set[str]:
    return {*code.co_names, *code.co_freevars}


def _tests_none(code: CodeType) -> bool:
    """Return True if a variable is compared with None, or decides by itself what is run."""
    import dis  # few programs ask

    steps = [step.opname.replace("FORWARD_", "") for step in dis.get_instructions(code)]
    steps = [step for step in steps if step not in ("CACHE", "TO_BOOL", "COPY", "NOT_TAKEN")]
    return any(
        step in _NONE_TESTS or (step in _TRUTH_TESTS and before.startswith("LOAD_FAST"))
        for before, step in itertools.pairwise(steps)
    )


def _place(code: CodeType) -> str:
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
