"""Fixtures that run the scripts in programs/, plain and under `lotus trace`."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import lotus
from lotus.reading.run import Run
from tests import warm
from tests.launching import LOTUS, PYTHON, ROOT
from tests.printed import without_tracker

PROGRAMS = Path(__file__).resolve().parent / "programs"
# A program that does not look at its own process has torch at once (tests/warm).
WARM = warm.interpreter(PYTHON, "torch")
# Goes before a program that is traced with `-q`: there is nothing but the program's own on its
# stderr, and what lotus has to say while it runs.
SPEAKING = ["env", "-u", "LOTUS_QUIET"]
# What programs/meanwhile.py prints.
UNDISTURBED = "".join(
    f"{epoch} {number} {[3 * number + place + 3 for place in range(3)]}\n"
    for epoch in range(2)
    for number in range(16)
)
HANG = 300  # seconds after which a process counts as hanging; no test asserts a time


@dataclass
class Ended:
    """How a program ended and what it printed; `path` is its run directory if it was traced."""

    code: int
    out: str
    err: str
    path: Path

    @property
    def run(self) -> Run:
        return lotus.load(self.path)

    @property
    def messages(self) -> list[str]:
        """What lotus itself said on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("lotus:")]


def without_places(text: str) -> str:
    """The text without the paths of this clone, its Python and its tests: they may say "lotus"."""
    for place in (ROOT, sys.prefix, sys.base_prefix, tempfile.gettempdir(), Path.home()):
        if str(place) != os.sep:
            text = text.replace(str(place), "")
    return re.sub(r"pytest-of-[^/]+/", "", text)


def environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOTUS_", "PYTHON", "PYTEST_", "COV_"))
    }
    return {**kept, **(extra or {})}


def execute(words: Sequence[object], folder: Path, path: Path, env=None, **kwargs) -> Ended:
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=HANG,
        check=False,
        **kwargs,
    )
    return Ended(ended.returncode, ended.stdout, without_tracker(ended.stderr), path)


@pytest.fixture(scope="session")
def torch() -> None:
    """Skips where the scripts' interpreter has no torch."""
    probe = subprocess.run(
        [PYTHON, "-c", "import importlib.metadata as m; m.version('torch')"],
        env=environment(None),
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"torch is not installed in {PYTHON}")


@pytest.fixture(scope="session")
def lotus_command() -> list[str]:
    """The words that run `lotus`, with nothing of lotus on the path of the traced program."""
    return LOTUS


@pytest.fixture
def lotus_report(tmp_path) -> Callable[..., Ended]:
    """lotus_report(path, *options): `lotus report` as a process."""
    return lambda path, *options: execute([*LOTUS, "report", path, *options], tmp_path, path)


@pytest.fixture(scope="session")
def programs() -> Path:
    return PROGRAMS


@pytest.fixture
def plain(torch, tmp_path) -> Callable[..., Ended]:
    """plain(script, *args, env={}, python=PYTHON): a script without lotus."""

    def run(script, *args, python=PYTHON, **kwargs):
        return execute([python, PROGRAMS / script, *args], tmp_path, tmp_path, **kwargs)

    return run


@pytest.fixture
def traced(torch, tmp_path) -> Callable[..., Ended]:
    """traced(script, *args, options=(), path=None, env={}, prefix=(), python=PYTHON): the same
    under lotus."""

    def run(script, *args, options=("-q",), path=None, prefix=(), python=PYTHON, **kwargs):
        path = path or tmp_path / "R"
        words = [*prefix, *LOTUS, "trace", "-o", path, *options, "--", *SPEAKING, python]
        return execute([*words, PROGRAMS / script, *args], tmp_path, path, **kwargs)

    return run


@pytest.fixture(scope="session")
def alone() -> dict[tuple[object, ...], Ended]:
    """The plain runs of pairs: with other options, the same one is beside another traced run."""
    return {}


@pytest.fixture
def pair(plain, traced, alone) -> Callable[..., tuple[Ended, Ended]]:
    """pair(script, *args, options=(), path=None, env={}, python=PYTHON): it plain and traced, side
    by side."""

    def run(script, *args, options=("-q",), path=None, env=None, python=PYTHON):
        key = (script, args, tuple(sorted((env or {}).items())))
        both = {"env": env, "python": python}
        with ThreadPoolExecutor(2) as pool:
            second = pool.submit(traced, script, *args, options=options, path=path, **both)
            if key not in alone:
                alone[key] = plain(script, *args, **both)
            return alone[key], second.result()

    return run
