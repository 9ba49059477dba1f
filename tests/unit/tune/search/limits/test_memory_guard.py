"""What a setting may take against what there is: the words of the guard and its arithmetic."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lotus
from lotus.common.machine import memory_headroom
from lotus.common.machine.memory_headroom import Headroom
from lotus.settings.space import Setting
from lotus.tune.search.limits import machine_limits, memory_guard
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.limits.resource_costs import ResourceCosts

MIB, GIB = 1 << 20, 1 << 30
COSTS = ResourceCosts(
    batch_bytes=154_000_000,
    shared_bytes=154_000_000,
    pipe_bytes=700,
    worker_bytes=300 * MIB,
    main_bytes=2 * GIB,
    tensors=2,
    start_method="fork",
)
ROOMY = MachineLimits(4.0, "", Headroom(1 << 50, "much"), Headroom(1 << 50, "much"), 1 << 30)
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
FREE = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapFree: 99999999 kB\n"}


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in (FREE | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def free(root: Path, files: dict[str, str]) -> int:
    room = memory_headroom.memory(machine(root, files))
    assert room is not None
    return room.free


def v2(folder: str, limit: str, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon {used}\ninactive_file {inactive}\n",
    }


def v1(folder: str, limit: int, used: int, inactive: int = 0, above: int = 1 << 63) -> dict:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": (
            f"inactive_file 1\nhierarchical_memory_limit {above}\ntotal_inactive_file {inactive}\n"
        ),
    }


def test_the_cgroups_of_another_process_are_its_own(tmp_path: Path) -> None:
    files = {"proc/self/mountinfo": V2_MOUNT, "proc/self/cgroup": "0::/shell\n"}
    files |= {"proc/7/cgroup": "0::/job\n", **v2(f"{V2}/job", str(GIB), GIB - 5)}
    root = machine(tmp_path, files)
    own, other = memory_headroom.memory(root), memory_headroom.memory(root, process="7")
    assert own is not None
    assert own.limit == 0
    assert other is not None
    assert (other.free, other.limit) == (5, GIB)


# -- what there is -------------------------------------------------------------------------


def test_without_a_cgroup_the_memory_available_counts_and_swap_does_not(tmp_path: Path) -> None:
    assert free(tmp_path, {}) == 8 * GIB


def test_a_system_that_tells_nothing_has_no_known_memory(tmp_path: Path) -> None:
    assert memory_headroom.memory(tmp_path) is None


def test_the_limit_of_cgroup_v2_less_use_more_file_pages(tmp_path: Path) -> None:
    own = v2(f"{V2}/job", str(4 * GIB), 3 * GIB, GIB)
    root = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
    assert free(tmp_path, root | own) == 2 * GIB
    room = memory_headroom.memory(tmp_path)
    assert room is not None
    assert room.why == "the cgroup's memory limit is 4.00 GiB and 2.00 GiB are in use"
    assert room.limit == 4 * GIB


@pytest.mark.parametrize("limit", ["max", str(32 * GIB)])
def test_where_the_system_has_less_left_no_cgroup_is_meant(tmp_path: Path, limit: str) -> None:
    files = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
    room = memory_headroom.memory(machine(tmp_path, files | v2(f"{V2}/job", limit, GIB)))
    assert room is not None
    assert (room.free, room.limit) == (8 * GIB, 0)


def test_the_tightest_of_nested_cgroups_counts(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/slice/job/step\n", "proc/self/mountinfo": V2_MOUNT}
    files |= v2(f"{V2}/slice", str(6 * GIB), 5 * GIB)  # others in it have taken the most
    files |= v2(f"{V2}/slice/job", str(4 * GIB), GIB)
    files |= v2(f"{V2}/slice/job/step", "max", GIB)
    assert free(tmp_path, files) == GIB


def test_max_is_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
    assert free(tmp_path, files | v2(f"{V2}/job", "max", GIB)) == 8 * GIB


def test_memory_high_slows_down_and_so_is_a_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
    files |= v2(f"{V2}/job", "max", GIB) | {f"{V2}/job/memory.high": f"{3 * GIB}\n"}
    assert free(tmp_path, files) == 2 * GIB


def test_a_limit_of_cgroup_v1_counts_with_what_is_below_it(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "4:memory:/m\n0::/\n", "proc/self/mountinfo": V1_MOUNT}
    files |= v1(V1, 9223372036854771712, 12 * GIB) | v1(f"{V1}/m", 2 * GIB, GIB, GIB // 2)
    assert free(tmp_path, files) == 3 * GIB // 2


def test_a_container_sees_its_own_limit_at_the_root_of_its_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n",
        "proc/self/mountinfo": V1_MOUNT.replace(" / /sys", " /docker/abc /sys"),
    }
    assert free(tmp_path, files | v1(V1, 2 * GIB, GIB)) == GIB


def test_cgroup_v1_tells_the_limit_of_a_parent_that_is_hidden(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "4:memory:/\n", "proc/self/mountinfo": V1_MOUNT}
    assert free(tmp_path, files | v1(V1, 1 << 63, GIB, above=3 * GIB)) == 2 * GIB


def test_more_in_use_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
    assert free(tmp_path, files | v2(f"{V2}/job", str(GIB), 2 * GIB)) == 0


def test_nonsense_in_the_files_is_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "::\n0::/job\n", "proc/self/mountinfo": "x\n" + V2_MOUNT}
    files |= v2(f"{V2}/job", "", 0) | {f"{V2}/job/memory.stat": "inactive_file\n\n a b c\n"}
    assert free(tmp_path, files) == 8 * GIB


def test_shared_memory_is_what_the_file_system_has_free(tmp_path: Path) -> None:
    system = os.statvfs(tmp_path)
    room = machine_limits.shared_memory(tmp_path)
    assert room is not None
    assert room.free <= system.f_blocks * system.f_frsize
    assert machine_limits.shared_memory(tmp_path / "absent") is None


def test_ranks_of_a_machine_share_memory() -> None:
    room = machine_limits.shared(Headroom(9 * GIB, "why"), 4)
    assert room == Headroom(9 * GIB // 4, "why, shared by 4 local ranks")
    assert machine_limits.shared(None, 4) is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"logical": 64, "affinity": 64, "quota": None}, 64),
        ({"logical": 64, "affinity": 8, "quota": None}, 8),
        ({"logical": 64, "affinity": 64, "quota": 1.5}, 1.5),
        ({"logical": 64, "affinity": 1, "quota": 1.5}, 1),
        ({"logical": 64, "affinity": 64, "quota": None, "ranks": 8}, 8),
        # The container's CPUs and its quota are those of all ranks.
        ({"logical": 64, "affinity": 8, "quota": None, "ranks": 4}, 2),
        ({"logical": 64, "affinity": 64, "quota": 8.0, "ranks": 4}, 2),
        # A launcher gave each rank CPUs of its own.
        ({"logical": 64, "affinity": 8, "quota": None, "ranks": 4, "bound": True}, 8),
        ({"logical": 64, "affinity": 8, "quota": 16.0, "ranks": 4, "bound": True}, 4),
    ],
)
def test_cores_are_the_least_that_anything_allows(facts, expected) -> None:
    assert machine_limits.cores(**facts)[0] == expected


def test_why_there_are_so_few_cores_is_said() -> None:
    _, why = machine_limits.cores(logical=64, affinity=64, quota=8.0, ranks=4)
    assert why == "CPU quota of the cgroup: 8, shared by 4 local ranks"
    assert machine_limits.cores(logical=64, affinity=8, quota=None)[1] == "affinity: 8 of 64 CPUs"


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),8"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "8"}, 1),  # of the allocation: no rank of a step
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
        ({"LOCAL_WORLD_SIZE": "²"}, 1),
    ],
)
def test_local_ranks_are_as_many_as_the_launcher_says(environment, ranks) -> None:
    assert machine_limits.local_ranks(environment) == ranks


def test_this_process_has_limits() -> None:
    limits = machine_limits.read(environment={})
    assert 0 < limits.cores <= (os.cpu_count() or 1)
    assert limits.memory is not None
    assert limits.memory.free > 0


def test_what_ranks_share_is_divided(monkeypatch, tmp_path: Path) -> None:
    alone = machine_limits.read(machine(tmp_path, {"dev/shm/x": ""}), environment={})
    monkeypatch.setattr(machine_limits, "_affinity_of_parent", os.sched_getaffinity)
    together = machine_limits.read(tmp_path, environment={"LOCAL_WORLD_SIZE": "2"})
    assert together.cores == alone.cores / 2
    assert together.memory is not None
    assert together.memory.free == 4 * GIB
    assert together.shm is not None
    assert together.shm.why.endswith(", shared by 2 local ranks")
    # Bound by the launcher, which itself may use more.
    wide = os.sched_getaffinity(0) | {1 << 20}
    monkeypatch.setattr(machine_limits, "_affinity_of_parent", lambda pid: wide)
    bound = machine_limits.read(tmp_path, environment={"LOCAL_WORLD_SIZE": "2"})
    assert bound.cores == alone.cores


# -- what a setting takes ------------------------------------------------------------------


def test_the_papers_first_trial_is_ruled_out_with_its_terms() -> None:
    small = replace(
        ROOMY,
        memory=Headroom(64 * GIB, "the system has 64.0 GiB of memory free"),
        shm=Headroom(24 * GIB, "/dev/shm has 24.0 GiB free of 24.0 GiB"),
    )
    verdict = memory_guard.judge(Setting(32, 128), COSTS, small)
    assert not verdict.allowed
    memory, shm = verdict.reasons
    held = "32 workers x prefetch 128 hold up to 4,096 batches of 147 MiB, the training loop 2"
    assert shm == f"{held}: 588 GiB of shared memory: /dev/shm has 24.0 GiB free of 24.0 GiB"
    assert memory == (
        f"{held}: 588 GiB, and 32 workers x 300 MiB = 9.38 GiB, together 597 GiB of memory: "
        "the system has 64.0 GiB of memory free"
    )


def test_each_limit_alone_rules_out() -> None:
    setting = Setting(4, 2)
    need = memory_guard.predict(setting, COSTS)
    assert need is not None
    assert memory_guard.judge(setting, COSTS, ROOMY).allowed
    tight = Headroom(int(need.shm_bytes), "so")
    for name, room in (
        ("memory", Headroom(need.memory_bytes, "so")),
        ("shm", tight),
        ("descriptors", need.descriptors + memory_guard.DESCRIPTOR_MARGIN - 1),
    ):
        verdict = memory_guard.judge(setting, COSTS, replace(ROOMY, **{name: room}))
        assert len(verdict.reasons) == 1
        if isinstance(room, Headroom):
            assert verdict.reasons[0].endswith(": so, of which a tenth is kept in reserve")
            enough = replace(ROOMY, **{name: Headroom(int(room.free / 0.9) + 1, "so")})
            assert memory_guard.judge(setting, COSTS, enough).allowed


def test_descriptors_are_counted_one_a_tensor() -> None:
    many = replace(COSTS, tensors=600)
    verdict = memory_guard.judge(Setting(1, 1), many, replace(ROOMY, descriptors=1000))
    assert verdict.reasons == (
        "3 batches of 600 tensors in shared memory, and 1 worker, need 2,400 descriptors of one "
        "process, which may open 1,000 more (ulimit -n), 64 of them kept in reserve",
    )
    files = replace(many, sharing="file_system")
    assert memory_guard.judge(Setting(1, 1), files, replace(ROOMY, descriptors=1000)).allowed


def test_arrays_take_memory_and_no_shared_memory() -> None:
    arrays = replace(COSTS, shared_bytes=0, pipe_bytes=COSTS.batch_bytes, tensors=0)
    need = memory_guard.predict(Setting(4, 8), arrays)
    assert need is not None
    assert need.shm_bytes == 0
    # Four are there twice while they are written, and one while it is read.
    assert need.batches_bytes == (4 * 8 + 2 + 4 + 1) * COSTS.batch_bytes
    nothing = replace(ROOMY, shm=Headroom(0, ""), descriptors=100)
    assert memory_guard.judge(Setting(4, 8), arrays, nothing).allowed


def test_a_shared_tensor_takes_whole_pages() -> None:
    need = memory_guard.predict(
        Setting(1, 1), replace(COSTS, batch_bytes=1, shared_bytes=1, tensors=5)
    )
    assert need is not None
    assert need.shm_bytes == 3 * (5 * 4096 + 1)


def test_no_more_is_in_flight_than_an_epoch_has() -> None:
    short = replace(COSTS, batches=10)
    need = memory_guard.predict(Setting(32, 128), short)
    assert need is not None
    assert need.in_flight == 10


def test_without_workers_nothing_is_shared() -> None:
    need = memory_guard.predict(Setting(0), COSTS)
    assert need is not None
    assert (need.in_flight, need.shm_bytes, need.descriptors) == (0, 0, 0)
    assert need.workers_bytes == COSTS.worker_bytes
    verdict = memory_guard.judge(
        Setting(0), COSTS, replace(ROOMY, memory=Headroom(0, "nothing is free"))
    )
    assert verdict.reasons[0].startswith("2 batches of 147 MiB in use: ")


def test_pinned_copies_are_rounded_up_to_powers_of_two() -> None:
    plain = memory_guard.predict(Setting(2, 8), COSTS)
    pinned = memory_guard.predict(Setting(2, 8, pin_memory=True), COSTS)
    assert plain is not None
    assert pinned is not None
    assert pinned.batches_bytes == (2 * 18 + 1) * COSTS.batch_bytes
    assert pinned.shm_bytes == plain.shm_bytes


def test_other_start_methods_take_what_the_main_process_holds() -> None:
    need = memory_guard.predict(Setting(2, 2, start_method="spawn"), COSTS)
    assert need is not None
    assert need.worker_bytes == COSTS.worker_bytes + 2 * GIB
    same = memory_guard.predict(Setting(2, 2, start_method="fork"), COSTS)
    assert same == memory_guard.predict(Setting(2, 2), COSTS)


def test_what_is_not_known_is_never_tried() -> None:
    unknown = replace(COSTS, main_bytes=None)
    verdict = memory_guard.judge(Setting(2, 2, start_method="spawn"), unknown, ROOMY)
    assert verdict.reasons == (
        "the memory of a worker under spawn is not known: only workers under fork were measured, "
        "and not the main process",
    )


def test_what_cannot_be_checked_is_said() -> None:
    blind = replace(ROOMY, memory=None, shm=None)
    verdict = memory_guard.judge(Setting(2, 2), replace(COSTS, tensors=None), blind)
    assert verdict.allowed
    assert verdict.unknown == (
        "how much memory is free is not known",
        "/dev/shm was not found",
        "how many descriptors a batch needs is not known",
    )


@settings(deadline=None)
@given(
    workers=st.integers(0, 64),
    prefetch=st.integers(1, 2048),
    pin=st.booleans(),
    shared=st.integers(0, 1 << 30),
    pipe=st.integers(0, 1 << 30),
    batches=st.none() | st.integers(1, 10_000),
)
def test_more_never_takes_less(workers, prefetch, pin, shared, pipe, batches) -> None:
    costs = replace(
        COSTS, batch_bytes=shared + pipe, shared_bytes=shared, pipe_bytes=pipe, batches=batches
    )
    setting = Setting(workers, prefetch, pin_memory=pin)
    need = memory_guard.predict(setting, costs)
    assert need is not None
    mores = [replace(setting, num_workers=workers + 1), replace(setting, pin_memory=True)]
    for more in [*mores, replace(setting, prefetch_factor=prefetch + 1)]:
        other = memory_guard.predict(more, costs)
        assert other is not None
        assert other.shm_bytes >= need.shm_bytes
        assert other.descriptors >= need.descriptors
        if workers:
            assert other.memory_bytes >= need.memory_bytes


# -- for real ------------------------------------------------------------------------------


@pytest.fixture
def cgroup_v1():
    """(controller) -> the folder of a fresh cgroup; skips where none may be made."""
    made: list[Path] = []

    def make(controller: str) -> Path:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            kind = right.split()
            if kind[0] == "cgroup" and controller in kind[2].split(","):
                folder = Path(left.split()[4]) / f"lotus-test-{os.getpid()}"
                try:
                    folder.mkdir()
                except OSError as error:
                    pytest.skip(f"no cgroup can be made here: {error}")
                made.append(folder)
                return folder
        pytest.skip(f"the {controller} controller of cgroup v1 is not mounted here")

    yield make
    for folder in made:
        folder.rmdir()


def _limits_in(folders: list[Path]) -> dict:
    """What `limits.read` tells in a process of those cgroups."""
    code = (
        "import sys, os, json, pathlib\n"
        "for one in sys.argv[1:]: pathlib.Path(one, 'tasks').write_text(str(os.getpid()))\n"
        "from lotus.tune.search.limits import machine_limits as limits\n"
        "found = limits.read(environment={})\n"
        "print(json.dumps([found.cores, found.cores_why, found.memory.free, found.memory.why]))\n"
    )
    root = Path(lotus.__file__).resolve().parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, folders)],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(zip(("cores", "cores_why", "free", "why"), json.loads(ended.stdout), strict=True))


def test_a_real_memory_limit_is_seen(cgroup_v1) -> None:
    folder = cgroup_v1("memory")
    (folder / "memory.limit_in_bytes").write_text(str(200 * MIB))
    limits = _limits_in([folder])
    assert limits["why"].startswith("the cgroup's memory limit is 200 MiB and ")
    assert 0 < limits["free"] < 200 * MIB


def test_a_real_quota_is_seen(cgroup_v1) -> None:
    folder = cgroup_v1("cpu")
    (folder / "cpu.cfs_period_us").write_text("100000")
    (folder / "cpu.cfs_quota_us").write_text("50000")
    limits = _limits_in([folder])
    assert limits["cores"] == 0.5
    assert limits["cores_why"] == "CPU quota of the cgroup: 0.5"


IN_V2 = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": V2_MOUNT}
IN_V1 = {"proc/self/cgroup": "4:memory:/m\n0::/\n", "proc/self/mountinfo": V1_MOUNT}


@pytest.mark.parametrize(
    ("files", "killed"),
    [
        (IN_V2 | {f"{V2}/job/memory.events": "oom 4\noom_kill 3\noom_group_kill 0\n"}, 3),
        (IN_V1 | {f"{V1}/m/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n"}, 2),
        (IN_V1 | {f"{V1}/m/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, None),
        ({}, None),
    ],
)
def test_processes_that_the_kernel_killed_are_counted(
    files: dict[str, str], killed: int | None, tmp_path: Path
) -> None:
    assert memory_headroom.killed(machine(tmp_path, files)) == killed


def test_the_limit_at_which_the_kernel_kills_is_not_the_one_that_slows_down(tmp_path: Path) -> None:
    own = v2(f"{V2}/job", str(4 * GIB), GIB) | {f"{V2}/job/memory.high": f"{2 * GIB}\n"}
    assert memory_headroom.limit(machine(tmp_path, IN_V2 | own)) == 4 * GIB


def test_the_limit_of_a_parent_counts(tmp_path: Path) -> None:
    files = IN_V1 | v1(f"{V1}/m", 1 << 62, GIB, above=3 * GIB)
    assert memory_headroom.limit(machine(tmp_path, files)) == 3 * GIB
