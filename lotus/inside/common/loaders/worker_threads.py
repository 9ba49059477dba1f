"""The number of threads that a loader's workers use."""

import ctypes
import functools
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Builds with 64-bit indices, and those in the wheels of numpy and scipy, have names of their own.
_OPENBLAS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("", "scipy_")
    for suffix in ("", "64_", "_64")
)


def set_threads(threads: int) -> None:
    """Set the threads of torch, OpenMP, MKL, OpenBLAS and cv2 in this process."""
    # For libraries that are loaded later, and for processes that the worker starts.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["OPENCV_FOR_THREADS_NUM"] = str(threads)
    sys.modules["torch"].set_num_threads(threads)
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(threads)
    for set_number in openblas_setters():
        set_number(threads)


def fix_threads(threads: int) -> None:
    """Set the threads of a worker's process, and keep its own code from setting others.

    A `worker_init_fn`, a data set or a transform may set them, which would undo a setting that was
    measured. A function that they imported by name before still does.
    """
    set_threads(threads)
    vars(sys.modules["torch"])["set_num_threads"] = _set_nothing
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None:
        vars(cv2)["setNumThreads"] = _set_nothing


def _set_nothing(*_: object, **__: object) -> None:
    """Replaces a function that sets a number of threads."""


@functools.lru_cache(maxsize=1)
def openblas_setters() -> "list[Any]":
    """Return the functions that set the threads of each OpenBLAS that is loaded.

    It read its variable when it was loaded. A process that forks workers calls this before: in a
    forked worker the loader's lock may be held by a thread that is not there, and finding functions
    takes it.
    """
    setters = []
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in file}
        for path in sorted(path for path in mapped if "openblas" in os.path.basename(path)):
            with suppress(OSError):  # what is mapped, but not loaded
                library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
                setters += [getattr(library, name) for name in _OPENBLAS if hasattr(library, name)]
    return setters


def hinders(threads: int, method: str, words: str) -> str:
    """Return why workers started by `method` cannot get these threads; "" if they can."""
    if method == "fork":
        if threads == 1:
            return ""
        # Seen with torch 2.14 (hangs) and 2.2 (crashes) if the parent had used its own threads.
        return (
            f"the {threads} threads a worker are not set for {words}: OpenMP can hang in forked "
            "workers; the setting needs a start_method of spawn"
        )
    common = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours = os.path.join(os.path.dirname(common), "sitecustomize")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not os.environ.get("LOTUS_SETTINGS") or ours not in paths:
        return "the threads a worker are not set: the program took lotus's environment away"
    return ""
