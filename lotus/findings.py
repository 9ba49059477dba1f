"""Words for what was found on a machine, and for each gap the command that closes it.

From facts alone: nothing is asked of the machine here.
"""

import errno
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from lotus.choosing import Chosen
from lotus.remedies import ENGINES, host_asks, install_perf, sysctl, unlock, unlock_asks
from lotus.sampling import CHEAP_NS, Sampled
from lotus.surroundings import Helpers, Library, PerfTool, Python, Room, System
from lotus.survey import Survey

OK, GAP, NOTE = "ok", "gap", "note"
_SHM_BYTES, _DISK_BYTES = 1 << 30, 2 << 30  # fewer are a gap
_SYMBOLS = {
    "all": "all functions have names",
    "exported": "only exported functions have names",
    "none": "no function has a name",
    "unreadable": "cannot be read",
}


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
class Facts:
    """All facts that findings are made of."""

    system: System
    perf: PerfTool
    survey: Survey
    counting: Chosen
    sampling: tuple[str, int, str]  # event as perf spells it, Hz, why
    python: Python | None
    helpers: Helpers
    room: Room


def why_no_hardware(facts: Facts) -> str:
    """Why no hardware event counts here."""
    states = {one.state for one in facts.survey.hardware}
    if "refused" in states:
        return "the kernel refuses hardware events to this user"
    if "counts" in states:
        return "hardware events open, but do not count rightly"
    if "zero" in states:
        return "hardware events open but count nothing"
    return "this VM has no counters" if facts.system.virtual else "the kernel offers no counters"


def refusal(facts: Facts) -> str:
    """Why the kernel counts nothing at all."""
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


def findings(facts: Facts) -> list[Finding]:
    """What is to be said of each area."""
    found = [
        *_machine(facts),
        *_rights(facts),
        *_counters(facts),
        *_sampling(facts),
        *_symbols(facts),
        *_frames(facts),
        *_space(facts),
    ]
    return [_as_root(one) for one in found] if facts.system.uid == 0 else found


def _as_root(finding: Finding) -> Finding:
    """Root needs no sudo, which small images do not have."""
    fixes = tuple(
        fix if "on the host" in fix else fix.replace("sudo ", "") for fix in finding.fixes
    )
    return replace(finding, fixes=fixes)


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
        found.add(OK, "perf events", text, *(sysctl(machine)[:1] if more else ()))
        return found
    paranoid = any(one.error == errno.EACCES for one in facts.survey.software)
    found.add(
        GAP,
        "perf events",
        f"{refusal(facts)}; {text}",
        *(sysctl(machine) if paranoid else unlock(machine)),
        still="lotus trace and report; exact times of every operation",
        asks=unlock_asks(machine),
    )
    return found


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
        _refused(facts, named("refused"), found)
    if named("absent"):
        found.add(NOTE, "absent", named("absent"))
    if survey.capacity.right:
        _capacity(facts, found)
    elif any(one.state == "counts" for one in survey.software):
        working = [one.event.name for one in survey.software if one.state == "counts"]
        still = f"{', '.join(working)} of each operation exactly; functions by the clock"
        text = why_no_hardware(facts)
        if any(one.state == "refused" for one in survey.hardware):
            found.add(GAP, "hardware", text, *sysctl(machine), still=still)
        elif machine.virtual:
            text += ", and nothing inside it helps: its host must pass them on"
            found.add(GAP, "hardware", text, still=still, asks=host_asks(machine))
        else:
            fix = "sudo dmesg | grep -i -e pmu -e perf   # says why"
            found.add(GAP, "hardware", text, fix, still=still)
    if survey.read is not None:
        found.add(NOTE, "cost", f"{survey.read.read_ns / 1e3:.2f} µs a reading of the group")
    return found


def _refused(facts: Facts, names: str, found: _Area) -> None:
    machine = facts.system
    if not any(one.state == "counts" for one in facts.survey.software):
        found.add(NOTE, "refused", names)  # why, and what helps, stands among the rights
    elif machine.privileged or machine.paranoid is None or machine.paranoid < 2:
        found.add(NOTE, "refused", f"{names}: the kernel does not allow it to this user")
    else:
        text = f"{names}: perf_event_paranoid {machine.paranoid} lets this user count nothing"
        text += " within the kernel, where it happens" if "context_switches" in names else ""
        found.add(NOTE, "refused", text, *sysctl(machine)[:1])


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


def _sampling(facts: Facts) -> list[Finding]:
    machine, survey, found = facts.system, facts.survey, _Area("sampling")
    _perf(facts, found)
    counts = any(one.event.name == "cycles" and one.state == "counts" for one in survey.hardware)
    for one in survey.samplers:
        if one.samples:
            found.add(OK, one.event.name, _price(one, bool(machine.virtual)))
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
        why, settings = [], []
        if machine.kptr_restrict != 0:
            why.append(f"kptr_restrict {machine.kptr_restrict}")
            settings.append("kernel.kptr_restrict=0")
        if not low and "SYSLOG" not in machine.capabilities:
            why.append(f"perf_event_paranoid {machine.paranoid}")
            settings.append("kernel.perf_event_paranoid=1")
        found.add(
            NOTE, "kernel", f"names of its functions are hidden ({', '.join(why)})",
            f"sudo sysctl {' '.join(settings)}",
            still="all that happens in user space",
        )  # fmt: skip
    helpers = facts.helpers
    if helpers.perf_binding:
        text = f"the kernel's Python binding is there: {helpers.perf_binding}"
        found.add(OK, "import perf", text)
    else:
        text, fixes = "no binding of perf for this Python", install_perf(machine)
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
        found.add(GAP, "perf", text, *install_perf(machine), still=still)
        return
    text = f"{perf.version} ({perf.path})"
    text += ", with capabilities of its own" if perf.capable else ""
    if perf.recorded is False:
        event, rate, _ = facts.sampling
        fixes = sysctl(machine) if machine.paranoid is not None and machine.paranoid > 1 else ()
        again = f"perf record -e {event} -F {rate} -k CLOCK_MONOTONIC -o /tmp/perf.data true"
        why = perf.trouble or "it does not say why"
        text += f" did not record: {why}"
        found.add(GAP, "perf", text, *fixes, f"{again}   # shows why", still=still)
    elif perf.recorded:
        found.add(OK, "perf", f"{text} records, when tried")
    else:
        found.add(NOTE, "perf", f"{text}, not tried")


def _price(one: Sampled, virtual: bool) -> str:
    if one.interrupt_ns is None:
        return "samples; an interrupt costs less than can be told from noise here"
    word = "cheap" if one.interrupt_ns < CHEAP_NS else "dear"
    share = one.interrupt_ns * 997 / 1e9
    if virtual:  # the host's doings are among it: its digits would say nothing
        return (
            f"samples; roughly {max(one.interrupt_ns / 1e3, 1):.0f} µs an interrupt ({word}): about"
            f" {max(share, 0.01):.0%} of a core at 997 Hz; in a VM this differs from time to time"
        )
    return (
        f"samples; about {one.interrupt_ns / 1e3:.1f} µs an interrupt ({word}): "
        f"{share:.1%} of a core at 997 Hz"
    )


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
        if machine.container in ENGINES:
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
            if machine.container in ENGINES:
                fixes.insert(0, f"{machine.container} run --shm-size 8g ...")
            found.add(GAP, "shared memory", text, *fixes)
    if room.disk_bytes is not None:
        text = f"{room.disk_bytes / 2**30:.1f} GiB free in {room.folder}"
        if room.disk_bytes >= _DISK_BYTES:
            found.add(OK, "disk", text)
        else:
            found.add(GAP, "disk", text, "lotus trace -o /another/disk/RUN ...")
    return found
