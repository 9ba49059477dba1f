"""What this machine can measure, and for each gap the command that closes it.

`examine` asks the machine; what it is told goes through `findings`, which only puts words to facts.
"""

import errno
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lotus import host, probing
from lotus.probing import Survey

SCHEMA = 1
OK, GAP, NOTE = "ok", "gap", "note"
_SHM_BYTES, _DISK_BYTES = 1 << 30, 2 << 30  # fewer are a gap
_PATIENCE_S = 10  # for programs that are asked something
_CAPABILITIES = {19: "SYS_PTRACE", 21: "SYS_ADMIN", 34: "SYSLOG", 38: "PERFMON"}
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
    pyelftools: bool = False
    cxxfilt: bool = False
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
        importlib.util.find_spec("elftools") is not None,
        importlib.util.find_spec("cxxfilt") is not None,
        own,
        tuple(sorted({str(one) for one in bindings if str(one) != own})),
    )


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
    sampling = probing.sampling_event(bool(machine.virtual))
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
        *_machine(facts.system),
        *_rights(facts),
        *_counters(facts),
        *_perf(facts),
        *_clock(facts),
        *_symbols(facts.python, facts.helpers),
        *_beside(facts),
    ]
    if facts.system.uid == 0:
        findings = [_as_root(one) for one in findings]
    return Report(_summary(facts), findings, json.loads(json.dumps(asdict(facts))))


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


def _machine(machine: System) -> list[Finding]:
    cpu = machine.cpu
    cores = f"{cpu.get('affinity')} of {cpu.get('logical')} cores"
    if cpu.get("quota"):
        cores += f", of which the cgroup allows {cpu['quota']:g} at once"
    found = [
        Finding("machine", "CPU", NOTE, f"{cpu.get('model')}, {cores}"),
        Finding("machine", "kernel", NOTE, f"Linux {machine.kernel} {machine.arch}"),
    ]
    if machine.virtual:
        name = "a virtual machine"
        name += "" if machine.virtual == "unnamed" else f": {machine.virtual}"
        found.append(Finding("machine", "VM", NOTE, name))
    if machine.container:
        words = f"in {machine.container}" if machine.container != "lxc" else "in lxc"
        words += ", with a seccomp filter" if machine.seccomp else ", without a seccomp filter"
        found.append(Finding("machine", "container", NOTE, words))
    return found


def _rights(facts: Facts) -> list[Finding]:
    machine = facts.system
    level = machine.paranoid
    allowed = any(one.state == "counts" for one in facts.survey.software)
    who = f"this user (uid {machine.uid}"
    who += f", {', '.join(machine.capabilities)})" if machine.capabilities else ")"
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
    if allowed:
        more = () if machine.privileged or (level is not None and level < 2) else _sysctl(machine)
        return [Finding("rights", "perf events", OK, text, more and more[:1], "")]
    text = f"{_refusal(facts)}; {text}"
    return [
        Finding(
            "rights",
            "perf events",
            GAP,
            text,
            _sysctl(machine) if _is_paranoid(facts) else _unlock(machine),
            "lotus trace and report; exact times of every operation",
            _unlock_asks(machine),
        )
    ]


def _is_paranoid(facts: Facts) -> bool:
    return any(one.error == errno.EACCES for one in facts.survey.software)


def _sysctl(machine: System) -> tuple[str, ...]:
    setting = "sudo sysctl kernel.perf_event_paranoid=1"
    if machine.container:
        return (f"{setting}   # on the host", *_unlock(machine))
    keep = "echo kernel.perf_event_paranoid=1 | sudo tee /etc/sysctl.d/60-lotus.conf"
    return (setting, f"{keep}   # after the next boot too")


def _unlock(machine: System) -> tuple[str, ...]:
    """What lets a container, or whatever filters system calls, use perf_event_open."""
    if machine.container in ("docker", "podman") or (machine.seccomp and not machine.container):
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
    if machine.container in ("apptainer", "lxc"):
        return (f"a seccomp filter of {machine.container} that allows perf_event_open",)
    return ()


def _counters(facts: Facts) -> list[Finding]:
    survey, machine = facts.survey, facts.system
    by_state = {
        state: [one.event.name for one in (*survey.hardware, *survey.software)
                if one.state == state]
        for state in ("counts", "zero", "refused", "absent")
    }  # fmt: skip
    found = []
    if by_state["counts"]:
        found.append(Finding("counters", "count", OK, ", ".join(by_state["counts"])))
    if by_state["zero"]:
        found.append(
            Finding(
                "counters", "count nothing", GAP,
                f"{', '.join(by_state['zero'])}: open, but read 0 where they cannot be 0",
                meanwhile="the others; these are left out, not shown as 0",
            )
        )  # fmt: skip
    if by_state["refused"]:
        found.append(Finding("counters", "refused", NOTE, ", ".join(by_state["refused"])))
    if by_state["absent"]:
        found.append(Finding("counters", "absent", NOTE, ", ".join(by_state["absent"])))
    software_works = any(one.state == "counts" for one in survey.software)
    capacity = survey.capacity
    if not capacity.right:
        if software_works:
            found.append(_no_hardware(facts))
        return found
    atmost = "" if capacity.bounded else "at least "
    if capacity.right < capacity.announced:
        text = (
            f"{capacity.announced} hardware events open as one group, {capacity.right} count"
            f" rightly ({', '.join(capacity.wrong)} did not): groups are kept to {capacity.right}"
        )
        fixes = ("sudo sysctl kernel.nmi_watchdog=0",) if machine.watchdog == 1 else ()
        found.append(Finding("counters", "at once", GAP if fixes else NOTE, text, fixes))
    else:
        text = f"{atmost}{capacity.right} hardware events in a group, each as when alone"
        found.append(Finding("counters", "at once", OK, text))
    if capacity.running < 0.99:
        text = (
            f"a group ran {capacity.running:.0%} of the time: something else uses counters"
            " (another profiler?); counts are then scaled and marked"
        )
        found.append(Finding("counters", "shared", GAP, text, ("pgrep -a perf",)))
    if machine.watchdog == 1:
        found.append(
            Finding(
                "counters", "NMI watchdog", GAP, "holds one counter of every core",
                ("sudo sysctl kernel.nmi_watchdog=0",), f"{capacity.right} events at once",
            )
        )  # fmt: skip
    names = ", ".join(one.name for one in facts.counting.events)
    level = "level 1 of top-down" if facts.counting.level_1 else "no level 1 of top-down"
    found.append(
        Finding(
            "counters", "set", OK if facts.counting.level_1 else NOTE,
            f"{facts.counting.uarch}, {level}: {names or 'none'}",
        )
    )  # fmt: skip
    found += [Finding("counters", "set", NOTE, note) for note in facts.counting.notes]
    if machine.rdpmc is not None:
        text = f"rdpmc {machine.rdpmc} ({'allowed' if machine.rdpmc else 'not allowed'})"
        found.append(Finding("counters", "rdpmc", NOTE, text + "; lotus reads by system call"))
    return found


def _no_hardware(facts: Facts) -> Finding:
    machine = facts.system
    working = [one.event.name for one in facts.survey.software if one.state == "counts"]
    still = f"{', '.join(working)} of each operation exactly; functions by the clock"
    if machine.virtual:
        text = f"{_why_no_hardware(facts)}, and nothing inside it helps: its host must pass them on"
        return Finding("counters", "hardware", GAP, text, (), still, _host_fixes(machine))
    refused = any(one.state == "refused" for one in facts.survey.hardware)
    fixes = _sysctl(machine) if refused else ("sudo dmesg | grep -i -e pmu -e 'perf'   # says why",)
    return Finding("counters", "hardware", GAP, _why_no_hardware(facts), fixes, still)


def _host_fixes(machine: System) -> tuple[str, ...]:
    """What to ask the host for; by its name where it has one, else all that are common."""
    name = machine.virtual.lower()
    known = {
        "vmware": 'VMware: vpmc.enable = "TRUE" in the .vmx file, with the machine off',
        "microsoft": "Hyper-V: Set-VMProcessor NAME -Perfmon @('pmu')",
        "google": "Google Cloud: gcloud compute instances create --performance-monitoring-unit="
        "standard, on machine types that have it",
        "amazon": "Amazon EC2: a .metal instance",
        "qemu": "QEMU/KVM: -cpu host,pmu=on (libvirt: <features><pmu state='on'/></features>),"
        " kvm.enable_pmu=1",
    }
    named = tuple(text for key, text in known.items() if key in name)
    return named or (known["qemu"], known["vmware"], known["amazon"])


def _perf(facts: Facts) -> list[Finding]:
    perf, machine = facts.perf, facts.system
    still = "lotus trace, report and --counters, none of which need perf"
    if perf.path is None:
        text = "is not on PATH"
        return [Finding("sampling", "perf", GAP, text, _install_perf(machine), still)]
    if not perf.version:
        text = f"{perf.path} does not run: {perf.trouble}"
        return [Finding("sampling", "perf", GAP, text, _install_perf(machine), still)]
    text = f"{perf.version} ({perf.path})"
    text += ", with capabilities of its own" if perf.capable else ""
    found = []
    if perf.recorded is False:
        fixes = _sysctl(machine) if machine.paranoid is not None and machine.paranoid > 1 else ()
        text += f" did not record: {perf.trouble or 'it does not say why'}"
        found.append(Finding("sampling", "perf", GAP, text, fixes, still))
    elif perf.recorded:
        found.append(Finding("sampling", "perf", OK, f"{text} records, when tried"))
    else:
        found.append(Finding("sampling", "perf", NOTE, f"{text}, not tried"))
    cycles = next((one for one in facts.survey.samplers if one.event.name == "cycles"), None)
    counts = any(
        one.event.name == "cycles" and one.state == "counts" for one in facts.survey.hardware
    )
    if counts and cycles is not None and not cycles.samples:
        text = "cycles can be counted but not sampled here: functions come by the clock"
        found.append(Finding("sampling", "cycles", NOTE, text))
    for one in facts.survey.samplers:
        if one.samples:
            found.append(Finding("sampling", one.event.name, OK, _price(one)))
    rate = machine.max_sample_rate
    if rate is not None and rate < 997:
        text = (
            f"the kernel allows {rate} samples a second (it lowers this when interrupts are slow)"
        )
        fix = "sudo sysctl kernel.perf_event_max_sample_rate=10000"
        found.append(
            Finding("sampling", "rate", GAP, text, (fix,), f"sampling at {facts.sampling[1]} Hz")
        )
    if machine.mlock_kb is not None and machine.mlock_kb < 516 and not machine.privileged:
        text = f"perf_event_mlock_kb is {machine.mlock_kb}: perf's buffers do not fit"
        fix = "sudo sysctl kernel.perf_event_mlock_kb=516"
        found.append(Finding("sampling", "buffers", GAP, text, (fix,)))
    hidden = not (
        ("SYSLOG" in machine.capabilities and (machine.kptr_restrict or 0) < 2)
        or (machine.kptr_restrict == 0 and machine.paranoid is not None and machine.paranoid < 2)
    )
    if hidden:
        text = f"names of kernel functions are hidden (kptr_restrict {machine.kptr_restrict})"
        fix = "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
        found.append(
            Finding("sampling", "kernel", NOTE, text, (fix,), "all that happens in user space")
        )
    return found


def _price(one: probing.Sampled) -> str:
    if one.interrupt_ns is None:
        return "samples; an interrupt costs less than can be told from noise here"
    word = "cheap" if one.interrupt_ns < probing.CHEAP_NS else "dear"
    per_second = one.interrupt_ns * 997 / 1e9
    return (
        f"samples; about {one.interrupt_ns / 1e3:.1f} µs an interrupt ({word}): "
        f"{per_second:.1%} of a core at 997 Hz"
    )


def _install_perf(machine: System) -> tuple[str, ...]:
    commands = {
        "ubuntu": "sudo apt install linux-tools-$(uname -r)",
        "debian": "sudo apt install linux-perf",
        "fedora": "sudo dnf install perf",
        "rhel": "sudo dnf install perf",
        "amzn": "sudo dnf install perf",
        "arch": "sudo pacman -S perf",
        "suse": "sudo zypper install perf",
        "opensuse": "sudo zypper install perf",
        "alpine": "sudo apk add perf",
    }
    for name in machine.distribution:
        if name == "ubuntu" and machine.container:
            # The kernel is the host's: its package may not exist for this release.
            return (commands[name], "sudo apt install linux-tools-generic")
        if name in commands:
            return (commands[name],)
    return (commands["debian"], commands["fedora"])


def _clock(facts: Facts) -> list[Finding]:
    found = []
    stamped = [one for one in facts.survey.samplers if one.samples]
    if stamped:
        good = all(one.monotonic for one in stamped)
        text = "samples carry CLOCK_MONOTONIC, the clock of lotus"
        if not good:
            text = "samples' times are not of CLOCK_MONOTONIC: they cannot be joined exactly"
        found.append(Finding("sampling", "clock", OK if good else GAP, text))
    ns, source = facts.survey.clock_ns, facts.system.clocksource
    text = f"{source or 'clock'}: {ns:.0f} ns a reading"
    if ns > 500:
        fix = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        meanwhile = "all, at a higher cost"
        found.append(Finding("machine", "clock", GAP, f"{text} is slow", (fix,), meanwhile))
    else:
        found.append(Finding("machine", "clock", OK, text))
    if facts.survey.read is not None:
        text = f"{facts.survey.read.read_ns / 1e3:.2f} µs a reading of the group"
        found.append(Finding("counters", "cost", NOTE, text))
    return found


def _symbols(python: Python | None, helpers: Helpers) -> list[Finding]:
    if python is None or not python.version:
        return [Finding("symbols", "python", NOTE, "no interpreter on PATH could be asked")]
    found = [Finding("symbols", "python", NOTE, f"{python.version} ({python.path})")]
    words = {
        "all": "all functions have names",
        "exported": "only exported functions have names",
        "none": "no function has a name",
        "unreadable": "cannot be read",
    }
    for one in python.libraries:
        name = Path(one.path).name
        text = f"{name}: {words[one.symbols]}"
        if one.debug:
            text = f"{name}: all functions have names, from its separate debug file"
        named = one.symbols == "all" or one.debug
        fixes: tuple[str, ...] = ()
        meanwhile = ""
        if not named:
            bounds = one.bounds and one.symbols != "unreadable"
            meanwhile = (
                f"the others are grouped by where they begin, as {name}!0x59f00"
                if bounds
                else "the library as a whole"
            )
            if one.package == "libc":
                fixes = ("sudo apt install libc6-dbg   # dnf: sudo dnf debuginfo-install glibc",)
        state = OK if named else GAP if fixes else NOTE
        found.append(Finding("symbols", one.package, state, text, fixes, meanwhile))
    pip = f"{sys.executable} -m pip install"
    for wanted, there, why in (
        ("pyelftools", helpers.pyelftools, "some ELF files are read by it"),
        ("cxxfilt", helpers.cxxfilt, "C++ names are shown as they were written by it"),
    ):
        if not there:
            fixes = (f"{pip} {wanted}",)
            found.append(Finding("symbols", wanted, GAP, f"not installed: {why}", fixes))
    return found


def _beside(facts: Facts) -> list[Finding]:
    helpers, machine, found = facts.helpers, facts.system, []
    still = "C and C++ functions by perf"
    if helpers.py_spy is None:
        fixes: tuple[str, ...] = (f"{sys.executable} -m pip install py-spy",)
        text = "py-spy is not installed: no Python lines under operations"
        found.append(Finding("python frames", "py-spy", GAP, text, fixes, still))
    elif (machine.ptrace_scope or 0) > 0 and "SYS_PTRACE" not in machine.capabilities:
        text = f"py-spy may not look into other processes (ptrace_scope {machine.ptrace_scope})"
        fixes = ("sudo sysctl kernel.yama.ptrace_scope=0",)
        if machine.ptrace_scope == 3:
            fixes = ("kernel.yama.ptrace_scope=0 in /etc/sysctl.d, then a reboot",)
        if machine.container in ("docker", "podman"):
            fixes = (f"{machine.container} run --cap-add SYS_PTRACE ...", *fixes)
        found.append(Finding("python frames", "py-spy", GAP, text, fixes, still))
    else:
        found.append(Finding("python frames", "py-spy", OK, helpers.py_spy))
    if helpers.perf_binding:
        text = f"the kernel's Python binding is there: {helpers.perf_binding}"
        found.append(Finding("sampling", "import perf", OK, text))
    else:
        others = f" (for another Python: {', '.join(helpers.other_bindings)})"
        text = "no binding of perf for this Python" + (others if helpers.other_bindings else "")
        fixes = _install_perf(machine) if not helpers.other_bindings else ()
        found.append(
            Finding("sampling", "import perf", NOTE, text, fixes, "sampling with perf record")
        )
    if facts.room.shm_bytes is not None:
        few = facts.room.shm_bytes < _SHM_BYTES
        text = f"/dev/shm has {facts.room.shm_bytes / 2**30:.1f} GiB free"
        fixes = ()
        if few:
            text += ": workers that send large batches may die of SIGBUS"
            fixes = ("sudo mount -o remount,size=8G /dev/shm",)
            if machine.container in ("docker", "podman"):
                fixes = (f"{machine.container} run --shm-size 8g ...", *fixes)
        found.append(Finding("room", "shared memory", GAP if few else OK, text, fixes))
    if facts.room.disk_bytes is not None:
        few = facts.room.disk_bytes < _DISK_BYTES
        text = f"{facts.room.disk_bytes / 2**30:.1f} GiB free in {facts.room.folder}"
        fixes = ("lotus trace -o /another/disk/RUN ...",) if few else ()
        found.append(Finding("room", "disk", GAP if few else OK, text, fixes))
    return found
