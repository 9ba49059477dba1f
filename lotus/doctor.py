"""What this machine can measure, and for each gap the command that closes it.

`examine` asks the machine; what it is told goes through `findings`, which only puts words to facts.
"""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from lotus import host, probing
from lotus.inside.perf_event import Event
from lotus.probing import Survey

SCHEMA = 1
OK, GAP, NOTE = "ok", "gap", "note"
_SHM_BYTES, _DISK_BYTES = 1 << 30, 2 << 30  # fewer are a gap
_PATIENCE_S = 10  # for programs that are asked something
_CAPABILITIES = {19: "SYS_PTRACE", 21: "SYS_ADMIN", 34: "SYSLOG", 38: "PERFMON"}
_ENGINES = ("docker", "podman")
_INSTALL_PERF = {  # by ID or ID_LIKE of /etc/os-release
    "ubuntu": "sudo apt install linux-tools-$(uname -r)",
    "debian": "sudo apt install linux-perf",
    "fedora": "sudo dnf install perf",
    "rhel": "sudo dnf install perf",
    "amzn": "sudo dnf install perf",
    "arch": "sudo pacman -S perf",
    "suse": "sudo zypper install perf",
    "alpine": "sudo apk add perf",
}
_SYMBOLS = {
    "all": "all functions have names",
    "exported": "only exported functions have names",
    "none": "no function has a name",
    "unreadable": "cannot be read",
}
_LIBRARIES = (
    ("torch", "torch/lib/libtorch_cpu.so"),
    ("torch", "torch/lib/libtorch_python.so"),
    ("torchvision", "torchvision/_C*.so"),
    ("torchvision", "torchvision/image*.so"),
    ("Pillow", "PIL/_imaging.*.so"),
    ("Pillow", "[pP]illow.libs/libjpeg*"),
    ("NumPy", "numpy/*core/_multiarray_umath*.so"),
    ("OpenCV", "cv2/cv2*.so"),
    ("OpenCV", "opencv_python*.libs/libjpeg*"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `fixes` are commands or settings that close a gap, each for
    itself; `meanwhile` is what works without them, `asks` what only others can do."""

    area: str
    topic: str
    state: str
    text: str
    fixes: tuple[str, ...] = ()
    meanwhile: str = ""
    asks: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """What /proc and /sys say; None where they say nothing."""

    kernel: str = ""
    arch: str = ""
    distribution: tuple[str, ...] = ()  # ID and ID_LIKE of os-release
    cpu: Mapping[str, Any] = field(default_factory=dict)
    paranoid: int | None = None
    max_sample_rate: int | None = None
    mlock_kb: int | None = None
    kptr_restrict: int | None = None
    watchdog: int | None = None
    ptrace_scope: int | None = None
    uid: int = 0
    capabilities: tuple[str, ...] = ()  # that matter here and count in the first user namespace
    user_namespace: bool = False
    seccomp: bool = False
    container: str = ""
    virtual: str = ""  # the hypervisor's or the machine's name
    pmus: tuple[str, ...] = ()
    rdpmc: int | None = None
    clocksource: str = ""

    @property
    def privileged(self) -> bool:
        """Whether perf_event_paranoid does not bind us."""
        return bool({"PERFMON", "SYS_ADMIN"} & set(self.capabilities))


@dataclass(frozen=True)
class PerfTool:
    path: str | None
    version: str = ""
    trouble: str = ""  # why it cannot be used, in its own words
    capable: bool = False  # its file carries capabilities
    recorded: bool | None = None  # whether it recorded samples on CLOCK_MONOTONIC, when tried


@dataclass(frozen=True)
class Library:
    package: str
    path: str
    symbols: str  # "all", "exported", "none", or "unreadable"
    bounds: bool  # whether .eh_frame tells where functions begin and end
    debug: bool = False  # whether a separate debug file was found


@dataclass(frozen=True)
class Python:
    """The interpreter that `python` on PATH is, and what of interest is installed for it."""

    path: str
    version: str = ""
    libraries: tuple[Library, ...] = ()


@dataclass(frozen=True)
class Helpers:
    """Programs and packages that lotus uses where they are."""

    py_spy: str | None = None
    demangler: bool = False  # libstdc++ or another that knows C++ names
    perf_binding: str | None = None  # of this interpreter's ABI
    other_bindings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
    shm_bytes: int | None
    disk_bytes: int | None
    folder: str


@dataclass(frozen=True)
class Report:
    """All that was found: `summary` in words, `facts` for programs."""

    summary: Mapping[str, str]
    findings: Sequence[Finding]
    facts: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The document of `lotus doctor --json`."""
        return {
            "schema": SCHEMA,
            "summary": dict(self.summary),
            "findings": [asdict(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }


def system(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> System:
    """Read the facts of the machine under `root`."""
    environ = os.environ if environ is None else environ
    status = dict(
        line.split(":", 1) for line in _read(root / "proc/self/status").splitlines() if ":" in line
    )
    effective = int(status.get("CapEff", "0").strip() or "0", 16)
    # Only capabilities of the first user namespace count for perf; it maps all ids to themselves.
    own = _read(root / "proc/self/uid_map").split()
    inner = bool(own) and own[:3] != ["0", "0", "4294967295"]
    release = dict(
        line.split("=", 1) for line in _read(root / "etc/os-release").splitlines() if "=" in line
    )
    names = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".replace('"', "").split()
    devices = root / "sys/bus/event_source/devices"
    pmus = sorted(_list(devices))
    core = next((name for name in ("cpu", "cpu_core") if name in pmus), None)
    kernel = root / "proc/sys/kernel"
    uname = os.uname()
    return System(
        kernel=uname.release,
        arch=uname.machine,
        distribution=tuple(names),
        cpu=host.facts(root)["cpu"],
        paranoid=_number(kernel / "perf_event_paranoid"),
        max_sample_rate=_number(kernel / "perf_event_max_sample_rate"),
        mlock_kb=_number(kernel / "perf_event_mlock_kb"),
        kptr_restrict=_number(kernel / "kptr_restrict"),
        watchdog=_number(kernel / "nmi_watchdog"),
        ptrace_scope=_number(kernel / "yama/ptrace_scope"),
        uid=os.getuid(),
        capabilities=tuple(
            name for bit, name in _CAPABILITIES.items() if effective >> bit & 1 and not inner
        ),
        user_namespace=inner,
        seccomp=status.get("Seccomp", "0").strip() == "2",
        container=_container(root, environ),
        virtual=_virtual(root),
        pmus=tuple(pmus),
        rdpmc=_number(devices / core / "rdpmc") if core else None,
        clocksource=_read(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ).strip(),
    )


def _container(root: Path, environ: Mapping[str, str]) -> str:
    groups = _read(root / "proc/1/cgroup") + _read(root / "proc/self/cgroup")
    if environ.get("KUBERNETES_SERVICE_HOST") or "kubepods" in groups:
        return "kubernetes"
    if (root / "run/.containerenv").exists() or "libpod" in groups:
        return "podman"
    if (root / ".dockerenv").exists() or "docker" in groups:
        return "docker"
    if (root / "singularity").exists() or environ.get("APPTAINER_CONTAINER"):
        return "apptainer"
    return "lxc" if "lxc" in groups else ""


def _virtual(root: Path) -> str:
    product = " ".join(
        _read(root / "sys/class/dmi/id" / name).strip() for name in ("sys_vendor", "product_name")
    ).strip()
    hypervisor = _read(root / "sys/hypervisor/type").strip()
    info = _read(root / "proc/cpuinfo")
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "").split()
    known = ("qemu", "kvm", "vmware", "virtual", "xen", "bochs", "amazon ec2", "google compute")
    tree = root / "proc/device-tree/hypervisor"
    by_name = any(name in product.lower() for name in known) and ".metal" not in product
    if "hypervisor" in flags or hypervisor or tree.exists() or (by_name and not flags):
        return product or hypervisor or "unnamed"
    return ""


def perf_tool(trial: Sequence[str] | None = None) -> PerfTool:
    """The `perf` on PATH; with an event and a frequency, a short recording is tried."""
    path = shutil.which("perf")
    if path is None:
        return PerfTool(None)
    code, out, err = _ask([path, "--version"])
    version = out.removeprefix("perf version").strip() if code == 0 else ""
    if not version:
        words = " ".join((err or out or "it says nothing").split())
        return PerfTool(path, trouble=words[:300])
    capable = probing.perf_has_rights()
    if not trial:
        return PerfTool(path, version, capable=capable)
    event, frequency = trial
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "perf.data")
        command = [path, "record", "-q", "-e", event, "-F", frequency, "-k", "CLOCK_MONOTONIC"]
        command += ["-o", str(file), "--no-bpf-event"]  # whose thread ends only after a second
        loop = [sys.executable, "-ISc", "for _ in range(1_000_000): pass"]
        code, out, err = _ask([*command, "--", *loop])
        recorded = code == 0 and file.exists() and file.stat().st_size > 0
    words = "" if recorded else " ".join((err or out).split())[:300]
    return PerfTool(path, version, words, capable, recorded)


def python() -> Python | None:
    """The interpreter that a user's `python` is, or this one; nothing of it is imported."""
    path = shutil.which("python") or shutil.which("python3") or sys.executable
    _, out, _ = _ask(
        [path, "-c", "import sys, json; print(json.dumps([sys.version.split()[0], sys.path[1:],"
         " sys.base_prefix, sys.executable]))"]
    )  # fmt: skip
    try:
        version, folders, prefix, executable = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return Python(path)
    found = [("Python", Path(executable).resolve())]
    found += [("Python", one) for one in sorted(Path(prefix, "lib").glob("libpython3.*.so.1.0"))]
    for line in _read(Path("/proc/self/maps")).splitlines():
        name = line.rpartition(" ")[2]
        if Path(name).name in ("libc.so.6",) and ("libc", Path(name)) not in found:
            found.append(("libc", Path(name)))
    for package, pattern in _LIBRARIES:
        for folder in folders:
            matches = sorted(Path(folder).glob(pattern)) if folder else []
            if matches:
                found += [(package, one) for one in matches[:2]]
                break
    return Python(path, version, tuple(library(package, one) for package, one in found))


def library(package: str, path: Path, debug: Path = Path("/usr/lib/debug")) -> Library:
    """What the file knows of its functions. Only its headers are read."""
    from native_map.elf import Elf
    from native_map.errors import Unusable

    try:
        elf = Elf.open(str(path))
        names = {section.name for section in elf.sections}
        build = elf.build_id
    except Unusable:
        return Library(package, str(path), "unreadable", False)
    if {".symtab", ".gnu_debugdata"} & names:
        symbols = "all"
    else:
        symbols = "exported" if ".dynsym" in names else "none"
    separate = bool(build) and (debug / ".build-id" / build[:2] / f"{build[2:]}.debug").exists()
    return Library(package, str(path), symbols, ".eh_frame" in names, separate)


def helpers() -> Helpers:
    """What is installed beside lotus."""
    beside = Path(sysconfig.get_path("scripts"), "py-spy")
    bindings = [
        one
        for folder in (
            "/usr/lib/python3/dist-packages",
            *_list_paths("/usr/lib*/python3*/*-packages"),
        )
        for one in sorted(Path(folder).glob("perf*.so"))
    ]
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ""
    own = next((str(one) for one in bindings if one.name == f"perf{suffix}"), None)
    return Helpers(
        shutil.which("py-spy") or (str(beside) if beside.exists() else None),
        _has_demangler(),
        own,
        tuple(sorted({str(one) for one in bindings if str(one) != own})),
    )


def _has_demangler() -> bool:
    for name in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            return bool(ctypes.CDLL(name).__cxa_demangle)
    return False


def room(folder: Path | None = None) -> Room:
    """Free bytes of /dev/shm and of the disk that runs are written to."""
    folder = folder or Path.cwd()
    return Room(_free(Path("/dev/shm")), _free(folder), str(folder))


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _list_paths(pattern: str) -> list[str]:
    return sorted(str(one) for one in Path("/").glob(pattern.lstrip("/")))


def _ask(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit code and words of a program; -1 where it cannot be run."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return -1, "", str(error)
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace").strip(),
        done.stderr.decode("utf-8", "replace").strip(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


@dataclass(frozen=True)
class Facts:
    """All facts that findings are made of."""

    system: System
    perf: PerfTool
    survey: Survey
    counting: probing.Chosen
    sampling: tuple[str, int, str]  # event as perf spells it, Hz, why
    python: Python | None
    helpers: Helpers
    room: Room


def examine() -> Report:
    """Look at this machine; takes a few seconds, never raises for what it finds."""
    machine = system()
    chosen = probing.choose(("auto",))
    sampling = probing.sampling_event()  # as lotus trace asks
    trial = (sampling[0], str(sampling[1])) if sampling[0] else None
    return report(
        Facts(
            machine,
            perf_tool(trial),
            probing.survey(chosen.tried),
            chosen,
            sampling,
            python(),
            helpers(),
            room(),
        )
    )


def report(facts: Facts) -> Report:
    """Put words to the facts."""
    findings = [
        *_machine(facts),
        *_rights(facts),
        *_counters(facts),
        *_sampling(facts),
        *_symbols(facts),
        *_frames(facts),
        *_space(facts),
    ]
    if facts.system.uid == 0:
        findings = [_as_root(one) for one in findings]
    return Report(_summary(facts), findings, _plain(facts))


def _plain(value: Any) -> Any:
    """The value as JSON has it; events by the names of their fields."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Event):
        return value._asdict()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _as_root(finding: Finding) -> Finding:
    """Root needs no sudo, which small images do not have."""
    fixes = tuple(
        fix if "on the host" in fix else fix.replace("sudo ", "") for fix in finding.fixes
    )
    return replace(finding, fixes=fixes)


def _summary(facts: Facts) -> dict[str, str]:
    right, software = facts.survey.capacity.right, facts.survey.software
    counts = any(one.state == "counts" for one in software)
    if right:
        counting = f"yes: {right} hardware events at once"
    elif counts:
        counting = f"software events only: {_why_no_hardware(facts)}"
    else:
        counting = f"no: {_refusal(facts)}"
    event, rate, why = facts.sampling
    if not event:
        sampling = f"no: {why}"
    elif facts.perf.path is None:
        sampling = f"not yet: perf is missing ({event} at {rate} Hz would do)"
    elif facts.perf.recorded is False or not facts.perf.version:
        sampling = "no: perf does not record here"
    else:
        sampling = f"yes: {event} at {rate} Hz ({why})"
    if facts.counting.level_1:
        topdown = f"yes: level 1 ({facts.counting.uarch})"
    else:
        topdown = "no: " + (
            "its events do not all count here" if right else "it needs hardware events"
        )
    return {"counting": counting, "sampling": sampling, "top-down": topdown}


def _why_no_hardware(facts: Facts) -> str:
    states = {one.state for one in facts.survey.hardware}
    if "refused" in states:
        return "the kernel refuses hardware events to this user"
    if "counts" in states:
        return "hardware events open, but do not count rightly"
    if "zero" in states:
        return "hardware events open but count nothing"
    return "this VM has no counters" if facts.system.virtual else "the kernel offers no counters"


def _refusal(facts: Facts) -> str:
    error = next((one.error for one in facts.survey.software if one.error), 0)
    machine = facts.system
    if error == errno.EACCES:
        return f"perf_event_paranoid {machine.paranoid} forbids it to this user"
    if error == errno.EPERM and machine.seccomp:
        return "this container's seccomp profile forbids perf_event_open"
    if error == errno.ENOSYS:
        by = "this container's seccomp profile" if machine.seccomp else "this kernel"
        return f"{by} has no perf_event_open"
    return f"perf_event_open: {os.strerror(error)}" if error else "nothing counts"


class _Area(list[Finding]):
    """The findings of one area."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(
        self,
        state: str,
        topic: str,
        text: str,
        *fixes: str,
        still: str = "",
        asks: tuple[str, ...] = (),
    ) -> None:
        self.append(Finding(self.name, topic, state, text, fixes, still, asks))  # fmt: skip


def _machine(facts: Facts) -> list[Finding]:
    machine, found = facts.system, _Area("machine")
    cpu = machine.cpu
    cores = f"{cpu.get('affinity')} of {cpu.get('logical')} cores"
    if cpu.get("quota"):
        cores += f", of which the cgroup allows {cpu['quota']:g} at once"
    found.add(NOTE, "CPU", f"{cpu.get('model')}, {cores}")
    found.add(NOTE, "kernel", f"Linux {machine.kernel} {machine.arch}")
    if machine.virtual:
        name = "" if machine.virtual == "unnamed" else f": {machine.virtual}"
        found.add(NOTE, "VM", f"a virtual machine{name}")
    if machine.container:
        seccomp = "with" if machine.seccomp else "without"
        found.add(NOTE, "container", f"in {machine.container}, {seccomp} a seccomp filter")
    ns, source = facts.survey.clock_ns, machine.clocksource or "clock"
    if ns > 500:
        fix = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        found.add(
            GAP, "clock", f"{source}: {ns:.0f} ns a reading is slow", fix,
            still="all, at a higher cost",
        )  # fmt: skip
    else:
        found.add(OK, "clock", f"{source}: {ns:.0f} ns a reading")
    return found


def _rights(facts: Facts) -> list[Finding]:
    machine, found = facts.system, _Area("rights")
    level = machine.paranoid
    who = f"this user ({', '.join((f'uid {machine.uid}', *machine.capabilities))})"
    if machine.privileged:
        means = f"does not bind {who}"
    elif level is None:
        means = "cannot be read"
    elif level >= 3:
        means = f"forbids perf_event_open to {who}"
    elif level == 2:
        means = f"lets {who} measure its own processes in user space, not in the kernel"
    elif level >= 0:
        means = f"lets {who} measure its own processes, the kernel's part too"
    else:
        means = "lets everyone measure everything"
    text = f"perf_event_paranoid {'?' if level is None else level} {means}"
    if machine.user_namespace:
        text += "; rights within a user namespace do not count for perf"
    if any(one.state == "counts" for one in facts.survey.software):
        more = level is not None and level >= 2 and not machine.privileged
        found.add(OK, "perf events", text, *(_sysctl(machine)[:1] if more else ()))
        return found
    paranoid = any(one.error == errno.EACCES for one in facts.survey.software)
    found.add(
        GAP,
        "perf events",
        f"{_refusal(facts)}; {text}",
        *(_sysctl(machine) if paranoid else _unlock(machine)),
        still="lotus trace and report; exact times of every operation",
        asks=_unlock_asks(machine),
    )
    return found


def _sysctl(machine: System) -> tuple[str, ...]:
    setting = "sudo sysctl kernel.perf_event_paranoid=1"
    if machine.container:
        return (f"{setting}   # on the host", *_unlock(machine))
    keep = "echo kernel.perf_event_paranoid=1 | sudo tee /etc/sysctl.d/60-lotus.conf"
    return (setting, f"{keep}   # after the next boot too")


def _unlock(machine: System) -> tuple[str, ...]:
    """What lets a container, or whatever filters system calls, use perf_event_open."""
    if machine.container in _ENGINES or (machine.seccomp and not machine.container):
        tool = machine.container or "docker"
        return (
            f"{tool} run --cap-add PERFMON ...",
            f"{tool} run --cap-add PERFMON --security-opt seccomp=PROFILE.json ..."
            "   # with perf_event_open allowed in PROFILE.json, where the first does not do",
        )
    if machine.container:
        return ()
    return ("grep PERF_EVENTS /boot/config-$(uname -r)   # is it built in?",)


def _unlock_asks(machine: System) -> tuple[str, ...]:
    if machine.container == "kubernetes":
        return (
            'the container\'s securityContext: {capabilities: {add: ["PERFMON"]}}, and a'
            " seccompProfile that allows perf_event_open",
        )
    if machine.container and machine.container not in _ENGINES:
        return (f"a seccomp filter of {machine.container} that allows perf_event_open",)
    return ()


def _counters(facts: Facts) -> list[Finding]:
    survey, machine, found = facts.survey, facts.system, _Area("counters")

    def named(state: str) -> str:
        both = (*survey.hardware, *survey.software)
        return ", ".join(one.event.name for one in both if one.state == state)

    if named("counts"):
        found.add(OK, "count", named("counts"))
    if named("zero"):
        found.add(
            GAP, "count nothing", f"{named('zero')}: open, but read 0 where they cannot be 0",
            "sudo dmesg | grep -i -e pmu -e perf   # may say why",
            still="the others; these are left out, not shown as 0",
        )  # fmt: skip
    if named("refused"):
        found.add(NOTE, "refused", named("refused"))
    if named("absent"):
        found.add(NOTE, "absent", named("absent"))
    if survey.capacity.right:
        _capacity(facts, found)
    elif any(one.state == "counts" for one in survey.software):
        working = [one.event.name for one in survey.software if one.state == "counts"]
        still = f"{', '.join(working)} of each operation exactly; functions by the clock"
        text = _why_no_hardware(facts)
        if any(one.state == "refused" for one in survey.hardware):
            found.add(GAP, "hardware", text, *_sysctl(machine), still=still)
        elif machine.virtual:
            text += ", and nothing inside it helps: its host must pass them on"
            found.add(GAP, "hardware", text, still=still, asks=_host_asks(machine))
        else:
            fix = "sudo dmesg | grep -i -e pmu -e perf   # says why"
            found.add(GAP, "hardware", text, fix, still=still)
    if survey.read is not None:
        found.add(NOTE, "cost", f"{survey.read.read_ns / 1e3:.2f} µs a reading of the group")
    return found


def _capacity(facts: Facts, found: _Area) -> None:
    machine, capacity, counting = facts.system, facts.survey.capacity, facts.counting
    if capacity.right < capacity.announced:
        found.add(
            NOTE, "at once",
            f"{capacity.announced} hardware events open as one group, {capacity.right} count"
            f" rightly ({', '.join(capacity.wrong)} did not): groups are kept to {capacity.right}",
        )  # fmt: skip
    else:
        least = "" if capacity.bounded else "at least "
        text = f"{least}{capacity.right} hardware events in a group, each as when alone"
        found.add(OK, "at once", text)
    if capacity.running < 0.99:
        found.add(
            GAP, "shared",
            f"a group ran {capacity.running:.0%} of the time: something else uses counters (another"
            " profiler?)", "pgrep -a perf   # and end it",
            still="counting, scaled and marked as such",
        )  # fmt: skip
    if machine.watchdog == 1:
        found.add(
            GAP, "NMI watchdog", "holds one counter of every core",
            "sudo sysctl kernel.nmi_watchdog=0", still=f"{capacity.right} events at once",
        )  # fmt: skip
    names = ", ".join(one.name for one in counting.events) or "none"
    level = "level 1 of top-down" if counting.level_1 else "no level 1 of top-down"
    state = OK if counting.level_1 else NOTE
    found.add(state, "set", f"{counting.uarch}, {level}: {names}")
    for note in counting.notes:
        found.add(NOTE, "set", note)
    if machine.rdpmc is not None:
        allowed = "allowed" if machine.rdpmc else "not allowed"
        found.add(NOTE, "rdpmc", f"{machine.rdpmc} ({allowed}); lotus reads by system call")


def _host_asks(machine: System) -> tuple[str, ...]:
    """What to ask the host for; by its name where it has one, else all that are common."""
    known = {
        "vmware": 'VMware: vpmc.enable = "TRUE" in the .vmx file, with the machine off',
        "microsoft": "Hyper-V: Set-VMProcessor NAME -Perfmon @('pmu')",
        "google": "Google Cloud: gcloud compute instances create --performance-monitoring-unit="
        "standard, on machine types that have it",
        "amazon": "Amazon EC2: a .metal instance",
        "qemu": "QEMU/KVM: -cpu host,pmu=on (libvirt: <features><pmu state='on'/></features>),"
        " kvm.enable_pmu=1",
    }
    named = tuple(text for key, text in known.items() if key in machine.virtual.lower())
    return named or (known["qemu"], known["vmware"], known["amazon"])


def _sampling(facts: Facts) -> list[Finding]:
    machine, survey, found = facts.system, facts.survey, _Area("sampling")
    _perf(facts, found)
    counts = any(one.event.name == "cycles" and one.state == "counts" for one in survey.hardware)
    for one in survey.samplers:
        if one.samples:
            found.add(OK, one.event.name, _price(one))
        elif one.event.name == "cycles" and counts:
            text = "cycles can be counted but not sampled here: functions come by the clock"
            found.add(NOTE, "cycles", text)
    if any(one.samples for one in survey.samplers):
        if all(one.monotonic for one in survey.samplers if one.samples):
            found.add(OK, "clock", "samples carry CLOCK_MONOTONIC, the clock of lotus")
        else:
            text = "samples' times are not of CLOCK_MONOTONIC: they cannot be joined exactly"
            found.add(NOTE, "clock", text)
    rate = machine.max_sample_rate
    if rate is not None and rate < 997:
        found.add(
            GAP, "rate",
            f"the kernel allows {rate} samples a second (it lowers this when interrupts are slow)",
            "sudo sysctl kernel.perf_event_max_sample_rate=10000",
            still=f"sampling at {facts.sampling[1]} Hz",
        )  # fmt: skip
    if machine.mlock_kb is not None and machine.mlock_kb < 516 and not machine.privileged:
        found.add(
            GAP, "buffers", f"perf_event_mlock_kb is {machine.mlock_kb}: perf's may not fit",
            "sudo sysctl kernel.perf_event_mlock_kb=516",
        )  # fmt: skip
    low = machine.paranoid is not None and machine.paranoid < 2
    by_right = "SYSLOG" in machine.capabilities and (machine.kptr_restrict or 0) < 2
    if not by_right and not (machine.kptr_restrict == 0 and low):
        found.add(
            NOTE, "kernel", f"names of its functions are hidden (kptr_restrict "
            f"{machine.kptr_restrict})",
            "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
            still="all that happens in user space",
        )  # fmt: skip
    helpers = facts.helpers
    if helpers.perf_binding:
        text = f"the kernel's Python binding is there: {helpers.perf_binding}"
        found.add(OK, "import perf", text)
    else:
        text, fixes = "no binding of perf for this Python", _install_perf(machine)
        if helpers.other_bindings:
            text += f" (for another: {', '.join(helpers.other_bindings)})"
            fixes = ()
        found.add(NOTE, "import perf", text, *fixes, still="sampling with perf record")
    return found


def _perf(facts: Facts, found: _Area) -> None:
    perf, machine = facts.perf, facts.system
    still = "lotus trace, report and --counters, none of which need perf"
    if not perf.version:
        text = f"{perf.path} does not run: {perf.trouble}" if perf.path else "is not on PATH"
        found.add(GAP, "perf", text, *_install_perf(machine), still=still)
        return
    text = f"{perf.version} ({perf.path})"
    text += ", with capabilities of its own" if perf.capable else ""
    if perf.recorded is False:
        event, rate, _ = facts.sampling
        fixes = _sysctl(machine) if machine.paranoid is not None and machine.paranoid > 1 else ()
        again = f"perf record -e {event} -F {rate} -k CLOCK_MONOTONIC -o /tmp/perf.data true"
        why = perf.trouble or "it does not say why"
        text += f" did not record: {why}"
        found.add(GAP, "perf", text, *fixes, f"{again}   # shows why", still=still)
    elif perf.recorded:
        found.add(OK, "perf", f"{text} records, when tried")
    else:
        found.add(NOTE, "perf", f"{text}, not tried")


def _price(one: probing.Sampled) -> str:
    if one.interrupt_ns is None:
        return "samples; an interrupt costs less than can be told from noise here"
    word = "cheap" if one.interrupt_ns < probing.CHEAP_NS else "dear"
    share = one.interrupt_ns * 997 / 1e9
    return (
        f"samples; about {one.interrupt_ns / 1e3:.1f} µs an interrupt ({word}): "
        f"{share:.1%} of a core at 997 Hz"
    )


def _install_perf(machine: System) -> tuple[str, ...]:
    for name in machine.distribution:
        if name == "ubuntu" and machine.container:
            # The kernel is the host's: its package may not exist for this release.
            return (_INSTALL_PERF[name], "sudo apt install linux-tools-generic")
        if name in _INSTALL_PERF:
            return (_INSTALL_PERF[name],)
    return (_INSTALL_PERF["debian"], _INSTALL_PERF["fedora"])


def _symbols(facts: Facts) -> list[Finding]:
    python, found = facts.python, _Area("symbols")
    if python is None or not python.version:
        found.add(NOTE, "python", "no interpreter on PATH could be asked for its libraries")
    else:
        found.add(NOTE, "python", f"{python.version} ({python.path})")
        for one in python.libraries:
            _library(one, found)
    if not facts.helpers.demangler:
        text = "libstdc++ is not installed, which tells C++ names as they were written"
        fix = "sudo apt install libstdc++6   # Fedora: sudo dnf install libstdc++"
        found.add(GAP, "C++ names", text, fix, still="all functions, by their mangled names")
    return found


def _library(one: Library, found: _Area) -> None:
    name = Path(one.path).name
    if one.debug:
        found.add(OK, one.package, f"{name}: all functions have names, by a separate debug file")
        return
    text = f"{name}: {_SYMBOLS[one.symbols]}"
    if one.symbols == "all":
        found.add(OK, one.package, text)
        return
    still = "the library as a whole"
    if one.bounds:
        still = f"the others are grouped by where they begin, as {name}!0x59f00"
    if one.package == "libc":
        fixes = ("sudo apt install libc6-dbg   # Fedora: sudo dnf debuginfo-install glibc",)
        found.add(GAP, one.package, text, *fixes, still=still)
    else:  # nothing can be installed for a library within a wheel
        found.add(NOTE, one.package, text, still=still)


def _frames(facts: Facts) -> list[Finding]:
    machine, found = facts.system, _Area("python frames")
    still, scope = "C and C++ functions by perf", machine.ptrace_scope or 0
    if facts.helpers.py_spy is None:
        text = "py-spy is not installed: no Python lines under operations"
        fix = f"{sys.executable} -m pip install py-spy"
        found.add(GAP, "py-spy", text, fix, still=still)
    elif scope > 0 and "SYS_PTRACE" not in machine.capabilities:
        fixes = ["sudo sysctl kernel.yama.ptrace_scope=0"]
        if scope == 3:
            fixes = [
                "echo kernel.yama.ptrace_scope=0 | sudo tee /etc/sysctl.d/60-lotus.conf"
                "   # then boot again"
            ]
        if machine.container in _ENGINES:
            fixes.insert(0, f"{machine.container} run --cap-add SYS_PTRACE ...")
        text = f"py-spy may not look into other processes (ptrace_scope {scope})"
        found.add(GAP, "py-spy", text, *fixes, still=still)
    else:
        found.add(OK, "py-spy", facts.helpers.py_spy)
    return found


def _space(facts: Facts) -> list[Finding]:
    machine, room, found = facts.system, facts.room, _Area("room")
    if room.shm_bytes is not None:
        text = f"/dev/shm has {room.shm_bytes / 2**30:.1f} GiB free"
        if room.shm_bytes >= _SHM_BYTES:
            found.add(OK, "shared memory", text)
        else:
            text += ": workers that send large batches may die of SIGBUS"
            fixes = ["sudo mount -o remount,size=8G /dev/shm"]
            if machine.container in _ENGINES:
                fixes.insert(0, f"{machine.container} run --shm-size 8g ...")
            found.add(GAP, "shared memory", text, *fixes)
    if room.disk_bytes is not None:
        text = f"{room.disk_bytes / 2**30:.1f} GiB free in {room.folder}"
        if room.disk_bytes >= _DISK_BYTES:
            found.add(OK, "disk", text)
        else:
            found.add(GAP, "disk", text, "lotus trace -o /another/disk/RUN ...")
    return found
