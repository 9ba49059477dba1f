"""Keeps lotus out of the program's way: hides its frames and contains its errors."""

from __future__ import annotations

import os
import sys
import threading
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

    class Faults(Protocol):
        """Receives an error in lotus, after which `on` is False."""

        @property
        def on(self) -> bool: ...
        def fault(self, error: Exception) -> None: ...

    class Interruptible(Faults, Protocol):
        """Is also notified when the program interrupts it."""

        def interrupted(self) -> None: ...

    _Function = TypeVar("_Function", bound=Callable[..., Any])
    _Arguments = ParamSpec("_Arguments")
    _Result = TypeVar("_Result")
    _Writer = TypeVar("_Writer", bound=Interruptible)

_Frame = type(sys._getframe())
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MARK = "_lotus_passes"
# Packages whose errors show no frame of theirs.
_CALLED = ("builtins", "torch", "numpy", "backports", "zstandard")
_STDLIB = os.path.dirname(os.__file__)
# The file name of the code objects of hooks, which identifies our frames. It contains the two words
# by which CPython's warnings module recognizes frames to skip when it counts `stacklevel`, so that
# a warning from the user's code still names the user's line.
HOOK_FILE = "<lotus hook, as importlib._bootstrap>"


def hook(function: _Function) -> _Function:
    """Mark a function as a hook: see HOOK_FILE."""
    function.__code__ = function.__code__.replace(co_filename=HOOK_FILE)
    del function.__annotations__  # the program could not resolve these names
    return function


def ours(frame_or_traceback: Any) -> bool:
    return is_our_code(getattr(frame_or_traceback, "tb_frame", frame_or_traceback).f_code)


def is_our_code(code: CodeType) -> bool:
    return code.co_filename == HOOK_FILE or code.co_filename.startswith(_HERE)


def strip(traceback: TracebackType | None) -> TracebackType | None:
    """Return `traceback` without the frames of lotus."""
    while traceback is not None and ours(traceback):
        traceback = traceback.tb_next
    link = traceback
    while link is not None:
        after = link.tb_next
        while after is not None and ours(after):
            after = after.tb_next
        if after is not link.tb_next:
            link.tb_next = after
        link = after
    return traceback


def of_the_program(error: BaseException) -> bool:
    """Return whether the program raised `error` into our code.

    That is, in a signal handler, or in this thread from another thread. Exceptions of the program's
    code that we called do not count.
    """
    if vars(error).get(_MARK):
        return True
    passed: list[FrameType]
    traceback, passed, alone = error.__traceback__, [], True
    while traceback is not None:
        frame = traceback.tb_frame
        if not ours(frame) and not _of_python(frame):
            # Only a signal handler gets the frame that it interrupts as an argument.
            arguments = _flat(tuple(frame.f_locals.values()) if passed else ())
            if any(_importer(value) is older for value in arguments for older in passed):
                return True
            alone = False
        passed.append(frame)
        traceback = traceback.tb_next
    module = str(type(error).__module__).partition(".")[0]
    return alone and module not in _CALLED and module not in sys.stdlib_module_names


def mark(error: BaseException) -> None:
    """Mark an error as `of_the_program`, even if its frames are cleared later."""
    vars(error)[_MARK] = True


def _of_python(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith("<frozen ") or (path.startswith(_STDLIB) and "-packages" not in path)


def _importer(value: Any) -> Any:
    """Return the frame that imports, if `value` is a frame of importlib's; else `value`.

    Python removes importlib's frames from a traceback.
    """
    while type(value) is _Frame and value.f_code.co_filename.startswith("<frozen importlib."):
        value = value.f_back
    return value


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if type(value) is tuple else (value,)


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an error, at most 200 characters."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


class quiet:
    """Like `contextlib.suppress`, but does not suppress errors that are `of_the_program`."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds) and not of_the_program(error)


def is_number(kind: type) -> bool:
    """Return whether objects of this type convert to int without running the program's code."""
    module = str(kind.__module__).partition(".")[0]
    return kind is int or kind is bool or module in ("numpy", "torch")


def ask(function: Callable[..., Any], *args: Any, default: Any = None) -> Any:
    """Call `function`, which may run code of the program; return `default` if it raises."""
    try:  # not `with quiet`, which costs ten times as much
        return function(*args)
    except Exception as error:
        if of_the_program(error):
            raise
    return default


def guarded(
    method: Callable[Concatenate[_Writer, _Arguments], _Result],
) -> Callable[Concatenate[_Writer, _Arguments], _Result | None]:
    """Decorate a method of the recorder for hooks: do nothing once recording is off.

    Its arguments are positional.
    """

    # Without keyword arguments, which would cost as much again at every call.
    @wraps(method)
    def call(self: _Writer, /, *args: Any) -> _Result | None:
        if not self.on:
            return None
        try:
            return method(self, *args)  # type: ignore[call-arg]
        except BaseException as error:
            if not isinstance(error, Exception) or of_the_program(error):
                self.interrupted()
                raise
            self.fault(error)
            return None

    return call  # type: ignore[return-value]


def edge(recorder: Faults, function: Callable[..., Any], *args: Any) -> Any:
    """Call our own `function`; an error in it switches recording off and is not raised."""
    if recorder.on:
        try:
            return function(*args)
        except BaseException as error:
            if not isinstance(error, Exception) or of_the_program(error):
                hide_our_frames(recorder, error)
                raise
            recorder.fault(error)
    return None


def hide_frames_below(error: BaseException) -> None:
    """Remove our frames below the calling hook from an exception that propagates to the user."""
    here = error.__traceback__
    if here is not None:
        here.tb_next = strip(here.tb_next)


def hide_our_frames(recorder: Faults, error: BaseException) -> None:
    """Remove our frames from an exception that propagates to the user.

    Frames below this hook are removed at once. The frame of this hook is removed when the exception
    ends the program or a thread; `sys.excepthook` is replaced only for that.
    """
    try:
        hide_frames_below(error)
        if threading.current_thread() is not threading.main_thread():
            _hide_in_thread()
        shown = sys.excepthook
        if getattr(shown, "_lotus", False):
            return

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: TracebackType | None
        ) -> None:
            sys.excepthook = shown
            if value is not None:
                value.__traceback__ = strip(traceback)
            shown(kind, value, strip(traceback))

        excepthook.__dict__["_lotus"] = True
        sys.excepthook = excepthook
    except Exception as fault:
        if of_the_program(fault):
            raise
        recorder.fault(fault)


def _hide_in_thread() -> None:
    shown = threading.excepthook
    if getattr(shown, "_lotus", False):
        return

    def excepthook(args: threading.ExceptHookArgs) -> None:
        threading.excepthook = shown
        traceback = strip(args.exc_traceback)
        if args.exc_value is not None:
            args.exc_value.__traceback__ = traceback
        shown(threading.ExceptHookArgs((args.exc_type, args.exc_value, traceback, args.thread)))

    excepthook.__dict__["_lotus"] = True
    threading.excepthook = excepthook


def hide_where_ignored(recorder: Faults, error: BaseException) -> None:
    """Like `hide_our_frames`, for an exception in `__del__`, which Python only prints."""
    hide_our_frames(recorder, error)
    shown = sys.unraisablehook
    if not hasattr(shown, "_lotus"):

        def unraisablehook(unraisable: Any) -> None:
            sys.unraisablehook = shown
            strip(unraisable.exc_traceback)  # the first frame is torch's
            shown(unraisable)

        unraisablehook.__dict__["_lotus"] = True
        sys.unraisablehook = unraisablehook


def exception_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for torch's `ExceptionWrapper`, which formats the traceback that a worker sends."""

    def ExceptionWrapper(exc_info: Any = None, where: str = "in background") -> Any:
        if exc_info is None:
            kind, error, traceback = sys.exc_info()
            exc_info = (kind, error, strip(traceback))
        return original(exc_info, where=where)

    return hook(ExceptionWrapper)
