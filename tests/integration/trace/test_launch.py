"""`lotus trace` beside a program: exit codes, streams, the run directory.

The real command line and real processes; what is recorded inside them is tested elsewhere.
"""

import json
import os
import resource
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.launched import LOTUS, manifest, messages_of, python, trace
from tests.launching import SMALL_TORCH

pytestmark = pytest.mark.usefixtures("own_directory", "no_signal_is_ignored")


# How it ends


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_passed_on(code: int) -> None:
    assert trace("sh", "-c", f"exit {code}").returncode == code
    record = manifest()
    assert (record["state"], record["exit_code"], record["signal"]) == ("ended", code, None)
    assert record["start_ns"] < record["end_ns"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGKILL", "SIGSEGV", "SIGUSR1", "SIGPIPE"])
def test_death_by_a_signal_is_passed_on(name: str) -> None:
    number = getattr(signal, name)
    run = trace("sh", "-c", f"kill -{number} $$")
    assert run.returncode == -number
    assert (manifest()["exit_code"], manifest()["signal"]) == (None, number)
    assert any(name in line for line in messages_of(run))


def test_lotus_dumps_no_core_of_its_own(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    run = trace(
        *("sh", "-c", "ulimit -c 0; kill -ABRT $$"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limit, limit)),
    )
    assert run.returncode == -signal.SIGABRT
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_command_that_is_not_found_is_127_and_leaves_nothing(tmp_path: Path) -> None:
    run = trace("no-such-command-here", "x")
    assert run.returncode == 127
    assert run.stderr.decode().count("\n") == 1
    assert "no-such-command-here: command not found" in run.stderr.decode()
    assert not list(tmp_path.iterdir())


def test_what_is_not_executable_is_126(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    lost = tmp_path / "lost"
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\0\0\0")
    binary.chmod(0o755)
    for path, word in (
        (script, "chmod"),
        (tmp_path, "directory"),
        (lost, "interpreter"),
        (binary, "cannot be started"),
    ):
        run = trace(path, options=("-f",))
        assert run.returncode == 126
        assert run.stderr.decode().count("\n") == 1
        assert word in run.stderr.decode()


def test_a_script_without_a_first_line_runs_as_from_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"\nexit 5\n')
    script.chmod(0o755)
    run = trace("./script", "a b")
    assert run.returncode == 5
    assert run.stdout == b"./script a b\n"


# What the program finds


def test_the_programs_bytes_are_its_own(tmp_path: Path) -> None:
    command = python(
        tmp_path,
        "import sys\n"
        "sys.stdout.buffer.write(sys.stdin.buffer.read() + bytes(range(256)))\n"
        "sys.stdout.flush()\n"
        "sys.stderr.buffer.write(b'no newline at the end \\xff')\n",
    )
    direct = subprocess.run(command, input=b"in\0", capture_output=True)
    quiet = trace(*command, options=("-q",), input=b"in\0")
    assert (quiet.stdout, quiet.stderr) == (direct.stdout, direct.stderr)
    loud = trace(*command, options=("-f",), input=b"in\0")
    assert loud.stdout == direct.stdout
    assert loud.stderr.startswith(direct.stderr)
    assert b"lotus: lotus records loops over torch's DataLoader" in loud.stderr


def test_quiet_says_nothing_whatever_happens() -> None:
    run = trace("sh", "-c", "kill -TERM $$", options=("-q",))
    assert (run.stdout, run.stderr) == (b"", b"")


def test_the_programs_process_is_as_without_lotus(tmp_path: Path) -> None:
    command = python(
        tmp_path,
        "import os, resource, signal\n"
        "status = open('/proc/self/status').read().splitlines()\n"
        "masks = [int(line[7:], 16) for line in status if line.startswith(('SigBlk', 'SigIgn'))]\n"
        # Without 32 and 33, the C library's own, which its posix_spawn ignores until they are used.
        "print([hex(mask & ~(3 << 31)) for mask in masks])\n"
        "print(sorted(os.listdir('/proc/self/fd')), os.getcwd(), os.umask(0))\n"
        "print(os.getpgid(0) == os.getpgid(os.getppid()), os.getsid(0), os.getpriority(0, 0))\n"
        "print([resource.getrlimit(number) for number in range(16)])\n",
    )
    reader, writer = os.pipe()
    shared: dict[str, Any] = {"capture_output": True, "pass_fds": (reader, writer)}
    direct = subprocess.run(command, **shared)
    traced = trace(*command, options=("-q",), **shared)
    assert direct.returncode == traced.returncode == 0
    assert direct.stdout.decode() == traced.stdout.decode()
    os.close(reader)
    os.close(writer)


def test_an_ignored_hangup_stays_ignored() -> None:
    run = subprocess.run(
        ["nohup", *LOTUS, "trace", "-q", "-o", "run", "--", "grep", "SigIgn", "/proc/self/status"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    mask = int(run.stdout.split()[1], 16)
    assert mask & (1 << (signal.SIGHUP - 1))
    assert not mask & (1 << (signal.SIGPIPE - 1))


def test_the_environment_is_as_without_lotus_but_for_our_own(tmp_path: Path) -> None:
    command = python(tmp_path, "import os, json; print(json.dumps(dict(os.environ)))")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"/a:{os.pathsep}/b", "X": "1"}
    if "PYTHONPATH" in os.environ:  # lotus itself may be found by it
        environ["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    run = trace(*command, options=("--op", "a.b:c", "--op", "d:e.f", "--every", "3"), env=environ)
    seen = json.loads(run.stdout)
    ours = seen.pop("PYTHONPATH").split(os.pathsep)
    assert ours[0].endswith(os.path.join("lotus", "inside", "sitecustomize"))
    assert ours[1:] == environ["PYTHONPATH"].split(os.pathsep)
    assert seen.pop("LOTUS_RUN") == str(tmp_path / "run")
    assert seen.pop("LOTUS_LEVEL") == "op"
    assert seen.pop("LOTUS_OPS") == "a.b:c\nd:e.f"
    assert seen.pop("LOTUS_EVERY") == "3"
    seen.pop("LC_CTYPE", None)
    assert seen == {name: environ[name] for name in ("PATH", "X")}


def test_a_traced_program_inside_a_traced_program_has_settings_of_its_own(tmp_path: Path) -> None:
    show = python(tmp_path, "import os; print(os.environ)")
    inner = [*LOTUS, "trace", "-q", "-o", "inner", "--", *show]
    run = trace(*inner, options=("-q", "--op", "a.b:c", "--batches", "1:2", "--max-log", "1MB"))
    assert run.returncode == 0, run.stderr
    output = run.stdout.decode()
    assert output.count("sitecustomize") == 1
    assert f"'LOTUS_RUN': '{tmp_path / 'inner'}'" in output
    for name in ("LOTUS_OPS", "LOTUS_BATCHES", "LOTUS_MAX_LOG"):
        assert name not in output
    assert manifest(Path("inner"))["state"] == "ended"


@pytest.mark.parametrize(
    "command",
    [["-c", "import sys; print(sys.argv)"], ["-m", "module"], ["script.py"], ["./runnable.py"]],
    ids=" ".join,
)
def test_code_modules_and_python_files_run_under_the_python_of_the_path(
    command: list[str], tmp_path: Path
) -> None:
    for name in ("module.py", "script.py", "runnable.py"):
        (tmp_path / name).write_text("import sys; print(sys.argv)\n")
    (tmp_path / "runnable.py").chmod(0o755)  # without a first line a shell would try to run it
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for name in ("python", "python3"):
        (bin_directory / name).write_text(
            f'#!/bin/sh\necho the one on PATH\nexec {shlex.quote(sys.executable)} "$@"\n'
        )
        (bin_directory / name).chmod(0o755)
    path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    run = trace(*command, "-x", "--y", env={**os.environ, "PATH": path})
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.decode().splitlines()
    assert first == "the one on PATH"
    assert second.endswith("'-x', '--y']")
    assert manifest()["command"] == [*command, "-x", "--y"]


# Streams that are not as usual


@pytest.mark.parametrize("redirection", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-", "2</dev/null"])
def test_closed_streams_change_nothing(redirection: str, tmp_path: Path) -> None:
    command = [
        *LOTUS,
        "trace",
        "-o",
        str(tmp_path / "run"),
        "--",
        "sh",
        "-c",
        "ls /proc/$$/fd >o; exit 4",
    ]
    line = " ".join(f"'{word}'" for word in command)
    for words in (line, "sh -c 'ls /proc/$$/fd >p; exit 4'"):
        run = subprocess.run(["sh", "-c", f"{words} {redirection}"], capture_output=True)
        assert run.returncode == 4
        assert run.stdout == b""
    assert Path("o").read_text() == Path("p").read_text()
    assert manifest()["exit_code"] == 4


def test_a_reader_that_has_gone_does_not_change_the_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = trace("sh", "-c", "exit 4", capture_output=False, stderr=writer)
    os.close(writer)
    assert run.returncode == 4


# The run directory


def test_the_run_directory_is_private_and_tells_what_runs(tmp_path: Path) -> None:
    trace("cp", "run/run.json", "during.json", options=("--level", "batch", "--batches", "1:"))
    assert stat.S_IMODE(Path("run").stat().st_mode) == 0o700
    assert stat.S_IMODE(Path("run/run.json").stat().st_mode) == 0o600
    during, after = json.loads(Path("during.json").read_text()), manifest()
    assert (during["state"], during["end_ns"]) == ("running", None)
    changed = {name for name in after if after[name] != during[name]}
    assert changed - {"memory_kills"} == {"state", "end_ns", "exit_code"}  # where they are counted
    assert after["command"] == ["cp", "run/run.json", "during.json"]
    assert (after["cwd"], after["level"], after["batches"]) == (str(tmp_path), "batch", "1:")


def test_secrets_stay_out_of_the_run() -> None:
    secret = "Zq7pXw2mKd9rTb4n"
    command = [
        "true",
        "--token",
        secret,
        f"password={secret}",
        f"https://me:{secret}@example.org/x",
    ]
    environ = {**os.environ, "HF_TOKEN": secret, "LOTUS_PASSWORD": secret}
    assert trace(*command, env=environ).returncode == 0
    for path in Path("run").rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


def test_an_earlier_run_is_overwritten_only_by_force() -> None:
    assert trace("sh", "-c", "exit 3").returncode == 3
    run = trace("sh", "-c", "touch started")
    assert run.returncode == 2
    assert run.stderr.decode().count("\n") == 1
    assert "-f" in run.stderr.decode()
    assert not Path("started").exists()
    assert manifest()["exit_code"] == 3
    assert trace("true", options=("-f",)).returncode == 0
    assert manifest()["exit_code"] == 0
    assert trace("no-such-command-here", options=("-f",)).returncode == 127
    assert manifest()["exit_code"] == 0  # a typing error costs no run


def test_force_spares_what_is_no_run() -> None:
    Path("run").mkdir()
    Path("run/thesis.tex").write_text("years of work")
    run = trace("true", options=("-f",))
    assert run.returncode == 2
    assert "holds no lotus run" in run.stderr.decode()
    assert os.listdir("run") == ["thesis.tex"]


def test_without_a_name_the_run_is_named_after_the_script(tmp_path: Path) -> None:
    command = python(tmp_path, "")
    run = subprocess.run([*LOTUS, "trace", "--", *command], capture_output=True, text=True)
    (path,) = Path("lotus-runs").iterdir()
    assert path.name.startswith("program-")
    assert "never imported torch.utils.data" in run.stderr
    assert "lotus report" not in run.stderr  # there is nothing to report


def test_a_removed_run_directory_does_not_disturb_the_program() -> None:
    run = trace("sh", "-c", "rm -r run; echo done; exit 6")
    assert (run.returncode, run.stdout) == (6, b"done\n")


# What went wrong, in a line


def test_a_command_that_starts_no_python_is_told_so() -> None:
    (line,) = messages_of(trace("true"))
    assert "no Python process reported" in line


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_cannot_load_the_hook_is_told_so(flag: str) -> None:
    run = trace(sys.executable, flag, "-c", "print('ran')")
    assert (run.returncode, run.stdout) == (0, b"ran\n")
    (line,) = messages_of(run)
    assert "-I, -E or -S" in line


def test_a_program_without_torch_is_told_so() -> None:
    (line,) = messages_of(trace("bash", "-c", f"{shlex.quote(sys.executable)} -c 'print(1)'"))
    assert "never imported torch.utils.data" in line


def test_a_program_that_fails_is_told_so_and_the_run_kept(tmp_path: Path) -> None:
    run = trace(*python(tmp_path, "raise SystemExit(9)"))
    assert run.returncode == 9
    assert "ended with code 9" in messages_of(run)[0]
    assert manifest()["exit_code"] == 9


def test_a_loader_that_is_never_iterated_is_told_so(tmp_path: Path) -> None:
    code = "from torch.utils.data import DataLoader\nDataLoader([1, 2, 3])\n"
    places = [*SMALL_TORCH.values(), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    run = trace(*python(tmp_path, code), env=environ)
    assert run.returncode == 0, run.stderr
    (line,) = messages_of(run)
    assert "no DataLoader was iterated" in line


def test_a_program_that_loads_data_gets_a_report_and_the_next_command(tmp_path: Path) -> None:
    code = """
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for batch in DataLoader(list(range(64)), batch_size=4, num_workers=1):
        pass
"""
    run = trace(*python(tmp_path, code))
    assert run.returncode == 0
    assert not messages_of(run), run.stderr.decode()
    assert len(run.stderr.decode().splitlines()) > 1
    assert run.stderr.decode().endswith("lotus report run\n")
