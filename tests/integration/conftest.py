"""Fixtures that run real scripts with the real command line, plain and traced.

The scripts run under the interpreter of pytest itself, or under $LOTUS_TEST_PYTHON (to test a
torch whose environment has no pandas).
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import lotus
from lotus.reading.run import Run
from tests import warm
from tests.launching import LOTUS, PYTHON, ROOT
from tests.printed import faults, without_tracker

PROGRAMS = Path(__file__).resolve().parent / "programs"
# The same with torch imported already, where no start of a program is looked at (tests/warm).
WARM = warm.interpreter(PYTHON, "torch")
WARM_VISION = warm.interpreter(PYTHON, "torch", "torchvision")
# Of `programs/`, what imports torchvision.
OF_VISION = {
    "transforms/augmented.py",
    "transforms/kept.py",
    "ranks/kept_ranks.py",
    "transforms/pictured.py",
    "transforms/pipelines.py",
}
SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]  # what a program is sent


@dataclass
class Ended:
    """How a program ended and what it printed; `truth` is where it wrote what it knows."""

    code: int
    out: bytes
    err: bytes
    truth: Path


@dataclass
class Traced(Ended):
    path: Path

    @cached_property
    def run(self) -> Run:
        """The run, without the note that a warm program, started by a server, is not below lotus.

        It is made only if the program was seen to go on, so it depends on how long it runs.
        """
        run = lotus.load(self.path)
        run.notes = [
            note for note in run.notes if "not below lotus in the process tree" not in note
        ]
        return run


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The test's own environment without what changes how a Python starts or what lotus does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOTUS_", "PYTHON", "PYTEST_", "COV_"))
    }
    return {**kept, **extra}


class Start:
    """One process, started at once; `end()` waits for it."""

    def __init__(
        self, command: Sequence[str], folder: Path, name: str, env: Mapping[str, str]
    ) -> None:
        self.truth = folder / f"{name}.truth"
        self.streams = [folder / f"{name}.out", folder / f"{name}.err"]
        # Files, not pipes: a child that outlives the program must not hold up the test.
        with self.streams[0].open("wb") as out, self.streams[1].open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment({"TRUTH": str(self.truth), **env}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def end(self) -> Ended:
        code = self.process.wait()
        out, err = (stream.read_bytes() for stream in self.streams)
        err = without_tracker(err.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        return Ended(code, out, err, self.truth)


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in a directory of its own, without settings of lotus from outside."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("LOTUS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def lotus_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python that the test starts finds this lotus, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def no_signal_is_ignored() -> Iterator[None]:
    """As they are where the tests do not run in the background of a script."""
    before = {name: signal.getsignal(getattr(signal, name)) for name in SIGNALS}
    for name, handler in before.items():
        if handler == signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


@pytest.fixture(scope="session")
def torch() -> tuple[int, int]:
    """The version of torch under which the scripts run; the test is skipped where there is none."""
    probe = subprocess.run(
        [PYTHON, "-c", "import importlib.metadata as m; print(m.version('torch'))"],
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"torch is not installed in {PYTHON}")
    major, minor = probe.stdout.split(".")[:2]
    return int(major), int(minor)


def traced_as(ended: Ended, path: Path) -> Traced:
    """How a program under `lotus trace -q` ended; a fault of ours counts as printed."""
    return Traced(ended.code, ended.out, ended.err + faults(path).encode(), ended.truth, path)


def command_of(
    script: str, args: Sequence[str], python: str = "", options: Sequence[str] = ()
) -> list[str]:
    """The words that run one of `programs/`; a recorder is attached to a real process."""
    python = python or (WARM_VISION if script in OF_VISION else WARM)
    if any(option.startswith(("--perf", "--py-spy")) for option in options):
        python = PYTHON
    return [python, str(PROGRAMS / script), *args]


@pytest.fixture(scope="session")
def trace_command(tmp_path_factory) -> Callable[..., Traced]:
    """trace_command(*command, env={}, options=()): any command line under `lotus trace`."""

    def run(*command, env=None, options=("-q",), cwd=None):
        folder = tmp_path_factory.mktemp("trace")
        words = [*LOTUS, "trace", "-o", str(folder / "R"), *options, "--", *map(str, command)]
        ended = Start(words, cwd or folder, "traced", env or {}).end()
        return traced_as(ended, folder / "R")

    return run


@pytest.fixture(scope="session")
def traced(torch, trace_command) -> Callable[..., Traced]:
    """traced(script, *args, env={}, options=()): one of `programs/` under `lotus trace -q`.

    Asked for twice in a session, the same run is given twice.
    """
    known = {}

    def run(script, *args, env=None, options=()):
        key = (script, args, tuple(sorted((env or {}).items())), options)
        if key not in known:
            words = command_of(script, args, options=options)
            known[key] = trace_command(*words, env=env, options=("-q", *options))
        return known[key]

    return run


@pytest.fixture(scope="session")
def two_ranks(torch, trace_command) -> Traced:
    """A job of two ranks, traced through its launcher."""
    job = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return trace_command(*job, PROGRAMS / "ranks/ranked.py", env={"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="session")
def pair(torch, tmp_path_factory) -> Callable[..., tuple[Ended, Traced]]:
    """pair(script, *args, env={}, options=()): the same script plain and traced, side by side.

    Asked for twice in a session, the same pair is given twice; with other options, another traced
    run beside the same plain one.
    """
    known = {}
    alone = {}

    def run(script, *args, env=None, options=()):
        program = (script, args, tuple(sorted((env or {}).items())))
        if (program, options) not in known:
            folder = tmp_path_factory.mktemp(Path(script).stem)
            words = command_of(script, args, options=options)
            trace = [*LOTUS, "trace", "-q", "-o", str(folder / "R"), *options, "--", *words]
            plain = Start(words, folder, "plain", env or {}) if program not in alone else None
            second = Start(trace, folder, "traced", env or {}).end()
            if plain is not None:
                alone[program] = plain.end()
            known[program, options] = (alone[program], traced_as(second, folder / "R"))
        return known[program, options]

    return run
