"""The number of threads that a loader's workers use."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours = os.path.join(folder, "sitecustomize")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not os.environ.get("LOTUS_SETTINGS") or ours not in paths:
        return "the threads a worker are not set: the program took lotus's environment away"
    return ""
