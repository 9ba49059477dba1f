"""Makes mixed clusters on one machine: ranks with less CPU time, cores, storage or bandwidth.

- CPU time: each rank, including its loader's workers, is in a control group (version 1) with a
  quota of cores, enforced every 20 ms.
- Cores: ranks are bound to CPUs, some of which they share. Used where control groups cannot be
  written.
- Storage: the blkio controller limits a rank's reads from the disk per second; pictures are read
  from a file with O_DIRECT, so that the page cache does not serve them.
- Links: each rank has a network namespace on a bridge; both directions of a slow link have a token
  bucket (tc tbf), and a delay (netem) if the kernel supports it.

Everything is removed at the end, or, if that was not reached, at the next start.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CPU, BLKIO = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/blkio")
NAME = "lotus-balance"
PERIOD_US = 20_000
SHARES = 1 << 18  # the most: what else runs on the machine is to take little from the ranks
BRIDGE, NET = "lotus-br", "10.213.97"


@dataclass(frozen=True)
class Member:
    """One rank's machine; None: not limited."""

    cores: float | None = None
    cpus: tuple[int, ...] = ()
    reads_per_s: int | None = None
    link_mbit: int | None = None
    delay_ms: float = 0.0

    def words(self) -> str:
        parts = [f"{self.cores:g} cores"] if self.cores else []
        parts += [f"CPU {','.join(map(str, self.cpus))}"] if self.cpus else []
        parts += [f"{self.reads_per_s} reads/s"] if self.reads_per_s else []
        parts += [f"{self.link_mbit} Mbit/s"] if self.link_mbit else []
        parts += [f"+{self.delay_ms:g} ms"] if self.delay_ms else []
        return " ".join(parts) or "as the machine is"


Members = tuple[Member, ...]
CLUSTERS: dict[str, Members] = {
    "quota2": (Member(0.8), Member(0.4)),
    "quota3": (Member(0.6), Member(0.45), Member(0.3)),
    "quota4": (Member(0.45), Member(0.45), Member(0.25), Member(0.25)),
    "affinity3": (Member(cpus=(0,)), Member(cpus=(1,)), Member(cpus=(1,))),
    "storage2": (Member(0.8), Member(0.8, reads_per_s=500)),
    "links3": (Member(0.6, link_mbit=100), Member(0.45), Member(0.3)),
    "delay3": (Member(0.6, delay_ms=5), Member(0.45), Member(0.3)),
    "modes3": (Member(0.6), Member(0.6), Member(0.3)),
}


def words(members: Members) -> str:
    return " | ".join(member.words() for member in members)


def missing(members: Members) -> str:
    """Return why such a cluster cannot be made here; "" if it can."""
    if any(set(member.cpus) - os.sched_getaffinity(0) for member in members):
        return "the CPUs that it names are not there"
    groups = [CPU] if any(member.cores for member in members) else []
    groups += [BLKIO] if any(member.reads_per_s for member in members) else []
    for group in groups:
        try:
            (group / f"{NAME}-try").mkdir(exist_ok=True)
            (group / f"{NAME}-try").rmdir()
        except OSError as error:
            return f"no control group can be made in {group}: {error.strerror}"
    try:
        if any(member.link_mbit or member.delay_ms for member in members):
            _link_down(1)
            try:
                _link_up(
                    0, next(member for member in members if member.link_mbit or member.delay_ms)
                )
            finally:
                _link_down(1)
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", "") or str(error)
        return f"no such link can be made: {message.strip().splitlines()[-1]}"
    return ""


@contextmanager
def alone() -> Iterator[None]:
    """One measurement at a time, as groups and namespaces have fixed names; none is left behind."""
    with (Path(tempfile.gettempdir()) / "lotus-balance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            clean()


@contextmanager
def made(members: Members, folder: Path, disk: str | None = None) -> Iterator[Path]:
    """Make a cluster; gives the file for balance_place.py. `disk`: major:minor of the data's."""
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # what is made is taken down
    path = folder / "places.json"
    clean()
    try:
        path.write_text(
            json.dumps([_place(rank, member, disk) for rank, member in enumerate(members)])
        )
        if any(member.link_mbit or member.delay_ms for member in members):
            for rank, member in enumerate(members):
                _link_up(rank, member)
            places = json.loads(path.read_text())
            for rank, place in enumerate(places):
                place |= {"namespace": f"{NAME}-{rank}", "interface": "eth0"}
                place["master"] = f"{NET}.254"
            path.write_text(json.dumps(places))
        yield path
    finally:
        clean()


def command(places: Path, ranks: int, script: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that starts the script on all ranks of a cluster that is made."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(ranks), str(HERE / "balance_place.py"), str(places)]
    return [*torchrun, str(script), *arguments]


def disk_of(path: Path) -> str:
    """major:minor of the disk that a folder is on."""
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def clean() -> None:
    """Take down all that an earlier start has left."""
    for root in (CPU, BLKIO):
        for group in root.glob(f"{NAME}-*"):
            _empty(group)
    _link_down(16)


def _empty(group: Path) -> None:
    # Only ranks of this benchmark are ever in these groups.
    for _ in range(600):
        with suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
    raise OSError(f"{group} cannot be removed")


def _place(rank: int, member: Member, disk: str | None) -> dict[str, object]:
    groups = []
    if member.cores:
        group = CPU / f"{NAME}-{rank}"
        group.mkdir()
        (group / "cpu.shares").write_text(str(SHARES))
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(member.cores * PERIOD_US)))
        groups.append(str(group))
    if member.reads_per_s:
        group = BLKIO / f"{NAME}-{rank}"
        group.mkdir()
        limit = f"{disk} {member.reads_per_s}"
        (group / "blkio.throttle.read_iops_device").write_text(limit)
        groups.append(str(group))
    return {"groups": groups, "cpus": list(member.cpus)}


def _ip(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True, text=True)


def _link_up(rank: int, member: Member) -> None:
    """A network namespace for a rank, on the bridge, with its limits at both ends."""
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        _ip("ip", "link", "add", BRIDGE, "type", "bridge")
        _ip("ip", "address", "add", f"{NET}.254/24", "dev", BRIDGE)
        _ip("ip", "link", "set", BRIDGE, "up")
    space, near = f"{NAME}-{rank}", f"lotus-v{rank}"
    _ip("ip", "netns", "add", space)
    _ip("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("ip", "link", "set", near, "master", BRIDGE, "up")
    _ip("ip", "-n", space, "address", "add", f"{NET}.{rank + 1}/24", "dev", "eth0")
    _ip("ip", "-n", space, "link", "set", "lo", "up")
    _ip("ip", "-n", space, "link", "set", "eth0", "up")
    kind: list[str] = []
    if member.link_mbit:
        kind = ["tbf", "rate", f"{member.link_mbit}mbit", "burst", "64kb", "latency", "200ms"]
    elif member.delay_ms:
        kind = ["netem", "delay", f"{member.delay_ms}ms"]
    if kind:
        _ip("tc", "qdisc", "add", "dev", near, "root", *kind)
        _ip("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", *kind)


def _link_down(most: int) -> None:
    if not Path("/run/netns").is_dir():
        return
    for rank in range(most):
        if Path(f"/run/netns/{NAME}-{rank}").exists():
            subprocess.run(["ip", "netns", "del", f"{NAME}-{rank}"], capture_output=True)
        if Path(f"/sys/class/net/lotus-v{rank}").exists():
            subprocess.run(["ip", "link", "del", f"lotus-v{rank}"], capture_output=True)
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)
