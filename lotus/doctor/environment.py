"""The environment of lotus: kernel settings, rights, programs, libraries and free space.

Reading it changes and imports nothing; a value that cannot be read is None or empty.
"""

import contextlib
import ctypes
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotus.common.machine import host, py_spy_program
from lotus.hardware.sampling_probe import perf_has_rights

_PATIENCE_S = 10  # for programs that are asked for their version, or tried
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
class System:
    """Values of /proc and /sys; None if they are not available."""

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
    capabilities: tuple[str, ...] = ()  # relevant ones that count in the first user namespace
    user_namespace: bool = False
    seccomp: bool = False
    container: str = ""
    virtual: str = ""  # the hypervisor's or the machine's name
    pmus: tuple[str, ...] = ()
    rdpmc: int | None = None
    clocksource: str = ""

    @property
    def privileged(self) -> bool:
        """True if perf_event_paranoid does not apply to this process."""
        return bool({"PERFMON", "SYS_ADMIN"} & set(self.capabilities))


@dataclass(frozen=True)
class PerfTool:
    """The installed perf."""

    path: str | None
    version: str = ""
    trouble: str = ""  # why it cannot be used, or was not tried to the end
    capable: bool = False  # its file has capabilities
    recorded: bool | None = None  # a trial recorded samples on CLOCK_MONOTONIC; None: not tried


@dataclass(frozen=True)
class Library:
    """A library of a package with C code, and how many of its functions have names."""

    package: str
    path: str
    symbols: str  # "all", "exported", "none", or "unreadable"
    bounds: bool  # .eh_frame has the bounds of functions
    debug: bool = False  # a separate debug file was found


@dataclass(frozen=True)
class Python:
    """The interpreter `python` on PATH, and relevant packages that are installed for it."""

    path: str
    version: str = ""
    libraries: tuple[Library, ...] = ()


@dataclass(frozen=True)
class OptionalTools:
    """Optional programs and packages that lotus uses."""

    py_spy: str | None = None
    demangler: bool = False  # libstdc++ or another library that demangles C++ names
    # Other distributions with a package `lotus`, and version: in the folder of lotus, elsewhere.
    namesakes: tuple[str, ...] = ()
    hidden_namesakes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
    """Free bytes in /dev/shm and on the disk of `folder`; None if unknown. Is `folder` writable?"""

    shm_bytes: int | None
    disk_bytes: int | None
    folder: str
    writable: bool = True


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
    hypervisors = (
        "qemu",
        "kvm",
        "vmware",
        "virtual",
        "xen",
        "bochs",
        "amazon ec2",
        "google compute",
    )
    tree = root / "proc/device-tree/hypervisor"
    by_name = any(name in product.lower() for name in hypervisors) and ".metal" not in product
    if "hypervisor" in flags or hypervisor or tree.exists() or (by_name and not flags):
        return product or hypervisor or "unnamed"
    return ""


def perf_tool(trial: Sequence[str] | None = None) -> PerfTool:
    """Return the `perf` on PATH; with an event and a frequency, a short recording is tried."""
    path = shutil.which("perf")
    if path is None:
        return PerfTool(None)
    code, out, err = _ask([path, "--version"])
    version = out.removeprefix("perf version").strip() if code == 0 else ""
    if not version:
        words = " ".join((err or out or "it says nothing").split())
        return PerfTool(path, trouble=words[:300])
    capable = perf_has_rights()
    if not trial:
        return PerfTool(path, version, capable=capable)
    event, frequency = trial
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "perf.data")
        command = [path, "record", "-q", "-e", event, "-F", frequency, "-k", "CLOCK_MONOTONIC"]
        # The thread for BPF ends only after a second; copies in ~/.debug stay.
        command += ["-o", str(file), "--no-bpf-event", "--no-buildid-cache"]
        loop = [sys.executable, "-ISc", "for _ in range(1_000_000): pass"]
        code, out, err = _ask([*command, "--", *loop])
        recorded = code == 0 and file.exists() and file.stat().st_size > 0
    words = "" if recorded else " ".join((err or out).split())[:300]
    if code is None:  # on a busy machine, which is no refusal
        return PerfTool(path, version, words, capable)
    return PerfTool(path, version, words, capable, recorded)


def python() -> Python | None:
    """Return the interpreter `python` on PATH, else this one; imports none of its packages."""
    path = shutil.which("python") or shutil.which("python3") or sys.executable
    _, out, _ = _ask(
        [path, "-c", "import sys, json; print(json.dumps([sys.version.split()[0], sys.path[1:],"
         " sys.base_prefix, sys.executable]))"]
    )  # fmt: skip
    try:
        version, folders, prefix, executable = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return Python(path)
    binaries = [("Python", Path(executable).resolve())]
    binaries += [
        ("Python", file) for file in sorted(Path(prefix, "lib").glob("libpython3.*.so.1.0"))
    ]
    for line in _read(Path("/proc/self/maps")).splitlines():
        name = line.rpartition(" ")[2]
        if Path(name).name in ("libc.so.6",) and ("libc", Path(name)) not in binaries:
            binaries.append(("libc", Path(name)))
    for package, pattern in _LIBRARIES:
        for folder in folders:
            matches = sorted(Path(folder).glob(pattern)) if folder else []
            if matches:
                binaries += [(package, file) for file in matches[:2]]
                break
    return Python(path, version, tuple(library(package, file) for package, file in binaries))


def library(package: str, path: Path, debug: Path = Path("/usr/lib/debug")) -> Library:
    """Return which functions of the file have names. Reads only its headers."""
    from native_map.errors import UnusableError
    from native_map.symbols.elf import Elf

    try:
        elf = Elf.open(str(path))
        names = {section.name for section in elf.sections}
        build = elf.build_id
    except UnusableError:
        return Library(package, str(path), "unreadable", False)
    if {".symtab", ".gnu_debugdata"} & names:
        symbols = "all"
    else:
        symbols = "exported" if ".dynsym" in names else "none"
    separate = bool(build) and (debug / ".build-id" / build[:2] / f"{build[2:]}.debug").exists()
    return Library(package, str(path), symbols, ".eh_frame" in names, separate)


def helpers() -> OptionalTools:
    """Return the optional programs and packages that are installed."""
    return OptionalTools(py_spy_program.find(), _has_demangler(), *namesakes())


def namesakes(
    folders: Sequence[str] | None = None, own: Path = Path(__file__).parents[2]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the distributions besides lotus-profiler that install a package `lotus`.

    (in the folder of lotus, where they overwrite each other's files; elsewhere, where Python finds
    lotus first). `folders`: where to look (default: sys.path); `own`: the folder of lotus.
    """
    beside: set[str] = set()
    hidden: set[str] = set()
    for other in importlib.metadata.distributions(path=list(folders or sys.path)):
        name = str(other.metadata["Name"] or "")
        if name and name.replace("_", "-").lower() != "lotus-profiler":
            with contextlib.suppress(OSError, UnicodeDecodeError):
                top = (other.read_text("top_level.txt") or "").split()
                record = other.read_text("RECORD") or ""
                if "lotus" in top or re.search(r"^lotus/__init__\.py,", record, re.MULTILINE):
                    same = Path(str(other.locate_file(""))).resolve() == own.resolve()
                    (beside if same else hidden).add(f"{name} {other.version}")
    return tuple(sorted(beside)), tuple(sorted(hidden))


def _has_demangler() -> bool:
    for name in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            return bool(ctypes.CDLL(name).__cxa_demangle)
    return False


def room(folder: Path | None = None) -> Room:
    """Return the free bytes of /dev/shm and of the disk that runs are written to."""
    folder = folder or Path.cwd()
    return Room(
        _free(Path("/dev/shm")), _free(folder), str(folder), os.access(folder, os.W_OK | os.X_OK)
    )


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _ask(command: Sequence[str]) -> tuple[int | None, str, str]:
    """Return the exit code and output of a program: -1 if it cannot be run, None if it is slow."""
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return None, "", f"it did not end within {_PATIENCE_S} s"
    except (OSError, subprocess.SubprocessError) as error:
        return -1, "", str(error)
    return (
        completed.returncode,
        completed.stdout.decode("utf-8", "replace").strip(),
        completed.stderr.decode("utf-8", "replace").strip(),
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
