"""The run directory: its name, how it is created, and when it may be overwritten."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shlex
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.format import manifest, run_claim

SWEEP = "sweep.json"  # the file that marks a directory as a sweep of runs
BLOCKING = "blocking.json"  # what threads were blocked in
OWN_CODE = "own_code.txt"  # stacks, until they are read into BLOCKING
PAUSE_CODE = "pause_code.txt"  # the same, of the time between the loops
STANDING_CODE = "standing_code.txt"  # the same, of a process that stands still
LONG_STEP_CODE = "long_step_code.txt"  # the same, of long training steps
ATTACHED = "attach.json"  # what `lotus attach` saw of a program that it did not start
FUNCTIONS = "functions.json"  # what perf sampled of it, with names
STACKS = "stacks.json"  # py-spy's, until they are read into ATTACHED
RUNS = "lotus-runs"  # in the current directory: the default place of runs


def make_default(command: Sequence[str]) -> Path:
    """Create the run directory lotus-runs/SCRIPT-TIME, a separate one for each concurrent call.

    Raises LotusError if it cannot be created.
    """
    return _make_named(command, run_claim.take)


def make_plain(command: Sequence[str]) -> Path:
    """Create a directory with this name and mode 0700 that is not a run's. Raises LotusError."""
    return _make_named(command, None)


def _make_named(command: Sequence[str], claim: Callable[[Path], object] | None) -> Path:
    base = Path(RUNS) / f"{script_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        base.parent.mkdir(exist_ok=True)
        _check_owner(base.parent)
        for number in itertools.count(2):
            path = base if number == 2 else base.with_name(f"{base.name}-{number - 1}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                if claim is not None:
                    claim(path)
                return path
    except OSError as error:
        raise _cannot_make(base, error) from None
    raise AssertionError


def script_name(command: Sequence[str]) -> str:
    """Return the name of a run of this command (not empty): its script, module or program."""
    if command[0] == "-c":
        return "code"
    scripts = [word for word in command if re.search(r"\.(py|sh|bash)$", word)]
    if "-m" in command[:-1] and not scripts:
        name = command[command.index("-m") + 1]
    elif scripts:
        name = Path(scripts[0]).stem
    else:
        name = Path(command[0]).name
    return re.sub(r"[^\w.]+", "-", name).strip("-.")[:60] or "run"


def make(path: Path, force: bool = False) -> None:
    """Create a run directory (mode 0700), or with `force` remove the records of an earlier run.

    Raises LotusError if the path is something else, if another user could replace the records, if
    another lotus process records there, or if the directory cannot be created.
    """
    try:
        if path.exists() and not path.is_dir():
            raise LotusError(f"{path} is a file; choose another directory with -o")
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            _check(path)
        with _alone(path):
            empty = all(entry.name == run_claim.NAME for entry in path.iterdir())
            pid = run_claim.holder(path)
            if pid is not None and (empty or (pid != os.getpid() and not _has_ended(path))):
                raise _taken(path, pid)
            if not empty:
                _empty(path, force)
            (path / run_claim.NAME).unlink(missing_ok=True)
            run_claim.take(path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise _cannot_make(path, error) from None


def _taken(path: Path, pid: int | None = None) -> LotusError:
    who = "another lotus" if pid is None else f"lotus (process {pid})"
    return LotusError(f"{who} is recording into {path}; choose another directory with -o")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock a directory while it is prepared. Raises LotusError if another lotus process has it."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(path) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(folder)


def _check(path: Path) -> None:
    """Raise LotusError if another user may write to a directory that existed before."""
    link, status = path.lstat(), path.stat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), status.st_uid):
        raise _of_another(path, link.st_uid)
    if status.st_uid != os.geteuid() and not _gets_its_owner(path, status.st_uid):
        raise _of_another(path, status.st_uid)
    # Most systems give a user a private group with the user's number.
    shared = 0o002 if status.st_gid == status.st_uid else 0o022
    if status.st_mode & shared:
        where = shlex.quote(str(path))
        raise LotusError(
            f"{path} may be written by other users, who could replace what is recorded there; type "
            f"chmod go-w {where}, or choose another directory with -o"
        )


def _check_owner(path: Path) -> None:
    """Raise LotusError if a directory of runs, but not the directory above, is another user's."""
    link, status, above = path.lstat(), path.stat(), path.absolute().parent.stat()
    for owner in (link.st_uid, status.st_uid):
        if owner not in (os.geteuid(), above.st_uid) and not _gets_its_owner(path, owner):
            raise _of_another(path, owner)


def _of_another(path: Path, owner: int) -> LotusError:
    return LotusError(
        f"{path} belongs to another user (number {owner}), who could replace what is recorded "
        "there; choose another directory with -o"
    )


def _gets_its_owner(path: Path, owner: int) -> bool:
    """Return True if new files there get the directory's owner.

    As on some shared file systems.
    """
    beside = path / f".lotus-{os.urandom(8).hex()}"
    try:
        with files.open_new(beside) as file:
            beside.unlink()
            return os.fstat(file.fileno()).st_uid == owner
    except OSError:
        return False


def _cannot_make(path: Path, error: OSError) -> LotusError:
    return LotusError(
        f"cannot make the run directory {path}: {error.strerror}; choose another one with -o"
    )


def _empty(path: Path, force: bool) -> None:
    if not is_run(path):
        if _is_damaged(path / manifest.NAME):
            raise LotusError(
                f"{path / manifest.NAME} is half written or damaged; choose another directory with "
                f"-o, or remove this one: rm -r {shlex.quote(str(path))}"
            )
        raise LotusError(
            f"{path} is not empty and holds no lotus run; choose another directory with -o"
        )
    _spare_running(path)
    if not force:
        raise LotusError(
            f"{path} holds an earlier run; -f overwrites it, -o chooses another directory"
        )
    # Only the files that lotus wrote: a report that the user saved there is kept.
    for old in path.glob(f".{manifest.NAME}.*"):
        old.unlink(missing_ok=True)
    beside = (
        "processes.jsonl",
        BLOCKING,
        OWN_CODE,
        PAUSE_CODE,
        STANDING_CODE,
        LONG_STEP_CODE,
        ATTACHED,
        FUNCTIONS,
        STACKS,
        "perf.data",
        "perf.data.old",
    )
    for name in beside:
        (path / name).unlink(missing_ok=True)
    for name, pattern in (("events", "*.ltr"), ("state", "*.state"), ("py-spy", "*.json")):
        folder = path / name
        if folder.is_symlink():
            folder.unlink()
            continue
        for old in folder.glob(pattern):
            old.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
    (path / manifest.NAME).unlink(missing_ok=True)


def _is_damaged(path: Path) -> bool:
    """Return True if this run.json is no JSON, as where lotus was killed while it wrote it."""
    try:
        files.read_json(path)
    except ValueError:
        return True
    except OSError:
        pass
    return False


def _has_ended(path: Path) -> bool:
    """Return True if the directory has the run.json of a run that has ended."""
    if not is_run(path):
        return False
    return bool(files.read_json(path / manifest.NAME).get("state") != "running")


_STILL = 60  # seconds without a record after which another host's run counts as killed


def _spare_running(path: Path) -> None:
    """Raise LotusError if another host is recording there: its run would lose its records."""
    record = files.read_json(path / manifest.NAME)
    host = record.get("host")
    if record.get("state") != "running" or host in (None, socket.gethostname()):
        return
    written = max((log.stat().st_mtime for log in path.glob("*/*")), default=0.0)
    if time.time() - max(written, (path / manifest.NAME).stat().st_mtime) < _STILL:
        raise LotusError(
            f"host {json.dumps(str(host))[1:-1]:.100} is recording in {path}; give each host of a "
            f"job its own directory, as with -o {path}-$(hostname), and lotus merge makes one run"
        )


def is_run(path: Path) -> bool:
    """Return True if a directory has a run.json that lotus wrote."""
    try:
        record = files.read_json(path / manifest.NAME)
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and {"schema", "lotus", "command"} <= record.keys()
