"""Memory that ends: the program meets it as without us, and what came before is kept."""

import contextlib
import os
import re
from pathlib import Path

import pytest

from lotus.common.machine import host
from tests.faults.conftest import PROGRAMS, SPEAKING, execute
from tests.launching import LOTUS, PYTHON


def placeless(text):
    """What was said, without addresses in memory."""
    return re.sub(r"0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_limit_on_memory_is_met_by_the_program_alone(pair, workers):
    plain, traced = pair("memory.py", "limit", workers)
    assert plain.out.count("MemoryError") == 2
    assert (traced.code, traced.out) == (plain.code, plain.out)
    assert placeless(traced.err) == placeless(plain.err)
    run = traced.run
    assert not run.lost["what"].str.contains("fault").any()
    assert (run.waits["failed"] == 1).sum() == 2
    assert len(run.waits) >= 2 * 5


@pytest.mark.parametrize("room", [1])
def test_no_room_at_all_costs_the_trace_and_not_the_program(torch, tmp_path, room):
    """Nearly no address space is left when tracing begins: the program prints what it would."""
    code = (
        "import resource, torch\n"
        "from torch.utils.data import DataLoader\n"
        "data = list(range(64))\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"limit = size + ({room} << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))\n"
        "for _ in range(3): print(list(DataLoader(data, batch_size=16, collate_fn=list)))\n"
    )
    plain = execute([PYTHON, "-c", code], tmp_path, tmp_path)
    path = tmp_path / "R"
    words = [*LOTUS, "trace", "-q", "-o", path, "--", *SPEAKING, PYTHON, "-c", code]
    traced = execute(words, tmp_path, path)
    assert (plain.code, plain.err) == (0, "")
    assert (traced.code, traced.out) == (plain.code, plain.out)
    assert "Traceback" not in traced.err
    assert len(traced.messages) <= 1


@pytest.fixture
def group():
    """A cgroup of little memory, as a path; skips where none can be made."""
    for folder in host.cgroups(Path("/"), "memory")[:1]:
        made = folder / f"lotus-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error.strerror}")
        limit = next(
            (
                control
                for name in ("memory.max", "memory.limit_in_bytes")
                if (control := made / name).exists()
            ),
            None,
        )
        try:
            if limit is None:
                pytest.skip("cgroups here have no controller of memory")
            limit.write_text(str(900 << 20))
            with contextlib.suppress(OSError):  # else it would go to swap for ever
                (made / "memory.swap.max").write_text("0")
            yield made
        except OSError as error:
            pytest.skip(f"no limit can be set here: {error.strerror}")
        finally:
            made.rmdir()
        return
    pytest.skip("no cgroups of memory are mounted here")


def killed(group):
    """How many processes of the cgroup the kernel has killed for memory; None where not counted."""
    for name in ("memory.events", "memory.oom_control"):
        if (counts := group / name).exists():
            fields = dict(line.split() for line in counts.read_text().splitlines())
            return int(fields["oom_kill"]) if "oom_kill" in fields else None
    return None


def test_a_worker_that_the_kernel_kills_for_memory_leaves_its_batches(torch, tmp_path, group):
    script = PROGRAMS / "memory.py"
    inside = 'echo $$ > "$0"/cgroup.procs && exec "$@"'

    def end(*words, path=tmp_path):
        """How it ended; again where the kernel killed the program too, not only its worker.

        A worker that gets no processor frees no memory, and the kernel looks for another process.
        """
        for _ in range(5):
            before = killed(group)
            ended = execute(["sh", "-c", inside, group, *words], tmp_path, path)
            workers = ended.out.count("[0,")  # each epoch starts one
            after = killed(group)
            if ended.code != -9 or after is None or after - before <= workers:
                return ended
        pytest.skip("the kernel kills the program itself, not its worker")

    plain = end(PYTHON, script, "cgroup", 1)
    path = tmp_path / "R"
    traced = end(
        *LOTUS, "trace", "-q", "-f", "-o", path, "--", PYTHON, script, "cgroup", 1, path=path
    )
    if plain.code < 0:
        pytest.skip("the kernel kills the program itself, not its worker")
    # How many batches are taken before the death is noticed is a matter of the moment.
    for ended in (plain, traced):
        assert (ended.code, ended.out.count("RuntimeError")) == (0, 2)
        assert "[8," not in ended.out
    run = traced.run
    assert (run.waits["failed"] == 0).sum() == traced.out.count("[")
    assert not run.lost["what"].str.contains("fault").any()
