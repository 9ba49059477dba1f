"""A worker's threads are limited, also those of an OpenBLAS that was loaded before the fork."""

import os
import subprocess
import sys
import types

import pytest

from lotus.inside.common.loaders import worker_threads

PROGRAM = """
import ctypes, os, sys, types
import numpy
sys.modules["torch"] = types.SimpleNamespace(set_num_threads=int)  # which takes a second to import
from lotus.inside.common.loaders.worker_threads import _OPENBLAS, openblas_setters, set_threads

def threads():
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    names = [name.replace("set_", "get_") for name in _OPENBLAS]
    libraries = [ctypes.CDLL(path) for path in paths]
    return [getattr(each, name)() for each in libraries for name in names if hasattr(each, name)]

matrix = numpy.ones((300, 300))
matrix @ matrix
openblas_setters()
pid = os.fork()
if not pid:
    ctypes.CDLL = None  # what a lock of the loader may keep waiting
    set_threads(1)
    ctypes.CDLL = ctypes.cdll._dlltype
    print(*threads(), (matrix @ matrix)[0, 0], flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(*threads(), (matrix @ matrix)[0, 0])
"""


def test_a_forked_worker_limits_an_openblas_that_is_loaded() -> None:
    pytest.importorskip("numpy")
    variables = {"OPENBLAS_NUM_THREADS": "3", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables
    )
    assert done.returncode == 0, done.stderr
    child, parent = (line.split() for line in done.stdout.splitlines())
    if set(parent[:-1]) <= {"1"}:
        pytest.skip("this numpy has another BLAS, or uses one thread of it")
    assert set(child[:-1]) == {"1"}
    assert "1" not in parent[:-1]
    assert child[-1] == parent[-1] == "300.0"


def test_a_workers_own_code_does_not_set_threads_that_are_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, int]] = []
    torch = types.SimpleNamespace(set_num_threads=lambda count: calls.append(("torch", count)))
    cv2 = types.SimpleNamespace(setNumThreads=lambda count: calls.append(("cv2", count)))
    for name, module in (("torch", torch), ("cv2", cv2)):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("OMP", "MKL", "OPENBLAS"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", "7")
    monkeypatch.setenv("OPENCV_FOR_THREADS_NUM", "7")
    monkeypatch.setattr(worker_threads, "openblas_setters", list)
    worker_threads.fix_threads(2)
    torch.set_num_threads(8)
    cv2.setNumThreads(nthreads=8)
    assert calls == [("torch", 2), ("cv2", 2)]
    assert os.environ["OMP_NUM_THREADS"] == "2"
