"""Describes the facts about a machine and, for each gap, the command that closes it.

This module only interprets facts; it probes nothing.
"""

import errno
import os
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from lotus.common.machine import py_spy_program
from lotus.doctor.environment import Library, OptionalTools, PerfTool, Python, Room, System
from lotus.doctor.fixes import ENGINES, host_asks, install_perf, sysctl, unlock, unlock_asks
from lotus.doctor.pmu_survey import Survey
from lotus.hardware.event_selection import Chosen
from lotus.hardware.sampling_probe import CHEAP_NS, ProbeSampling

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
    """The result of a check. `fixes` are commands or settings that close the gap, `meanwhile` says
    what works without them, and `asks` are changes that only an administrator can make."""

    area: str
    topic: str
    state: str
    text: str
    fixes: tuple[str, ...] = ()
    meanwhile: str = ""
    asks: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineFacts:
    """All facts from which findings are derived."""

    system: System
    perf: PerfTool
    survey: Survey
    counting: Chosen
    sampling: tuple[str, int, str]  # event in perf's spelling, Hz, reason
    python: Python | None
    helpers: OptionalTools
    room: Room


def why_no_hardware(facts: MachineFacts) -> str:
    """Return why no hardware event can be counted here."""
    states = {probed.state for probed in facts.survey.hardware}
    if "refused" in states:
        return "the kernel refuses hardware events to this user"
    if "counts" in states:
        return "hardware events open, but do not count correctly"
    if "zero" in states:
        return "hardware events open but count nothing"
    return "this VM has no counters" if facts.system.virtual else "the kernel offers no counters"


def refusal(facts: MachineFacts) -> str:
    """Return why the kernel counts no events at all."""
    error = next((probed.error for probed in facts.survey.software if probed.error), 0)
    machine = facts.system
    if error == errno.EACCES:
        return f"perf_event_paranoid {machine.paranoid} forbids it to this user"
    if error == errno.EPERM and machine.seccomp:
        return "this container's seccomp profile forbids perf_event_open"
    if error == errno.ENOSYS:
        by = "this container's seccomp profile" if machine.seccomp else "this kernel"
        return f"{by} has no perf_event_open"
    return f"perf_event_open: {os.strerror(error)}" if error else "nothing counts"


def findings(facts: MachineFacts) -> list[Finding]:
    """Return the findings of each area."""
    results = [
        *_torch(facts),  # without it, lotus shows nothing
        *_machine(facts),
        *_rights(facts),
        *_counters(facts),
        *_sampling(facts),
        *_symbols(facts),
        *_frames(facts),
        *_space(facts),
    ]
    return [_as_root(finding) for finding in results] if facts.system.uid == 0 else results


def _as_root(finding: Finding) -> Finding:
    """Remove sudo for root, because small images lack it."""
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


def _machine(facts: MachineFacts) -> list[Finding]:
    machine, area = facts.system, _Area("machine")
    cpu = machine.cpu
    cores = f"{cpu.get('affinity')} of {cpu.get('logical')} cores"
    if cpu.get("quota"):
        cores += f", of which the cgroup allows {cpu['quota']:g} at once"
    area.add(NOTE, "CPU", f"{cpu.get('model')}, {cores}")
    area.add(NOTE, "kernel", f"Linux {machine.kernel} {machine.arch}")
    if machine.virtual:
        name = "" if machine.virtual == "unnamed" else f": {machine.virtual}"
        area.add(NOTE, "VM", f"a virtual machine{name}")
    if machine.container:
        seccomp = "with" if machine.seccomp else "without"
        area.add(NOTE, "container", f"in {machine.container}, {seccomp} a seccomp filter")
    if facts.helpers.namesakes:
        names = [shlex.quote(entry.split()[0]) for entry in facts.helpers.namesakes]
        python = shlex.quote(sys.executable)
        area.add(
            GAP, "package",
            f"{' and '.join(facts.helpers.namesakes)} installs a package called lotus too, and the "
            "one overwrites files of the other; give one of them an environment of its own, or "
            "uninstall both and install lotus-profiler again",
            f"{python} -m pip uninstall {' '.join(names)} lotus-profiler",
            still="what was installed last",
        )  # fmt: skip
    if facts.helpers.hidden_namesakes:
        area.add(
            GAP, "package",
            f"{' and '.join(facts.helpers.hidden_namesakes)} installs a package called lotus too, "
            "in another folder, and `import lotus` finds this one first; give one of them an "
            "environment of its own",
            still="lotus, but no program that imports the other package",
        )  # fmt: skip
    ns, source = facts.survey.clock_ns, machine.clocksource or "clock"
    if ns > 500:
        fix = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        area.add(
            GAP, "clock", f"{source}: {ns:.0f} ns a reading is slow", fix,
            still="all, at a higher cost",
        )  # fmt: skip
    else:
        area.add(OK, "clock", f"{source}: {ns:.0f} ns a reading")
    return area


def _rights(facts: MachineFacts) -> list[Finding]:
    machine, area = facts.system, _Area("rights")
    level = machine.paranoid
    who = f"this user ({', '.join((f'uid {machine.uid}', *machine.capabilities))})"
    if machine.privileged:
        meaning = f"does not bind {who}"
    elif level is None:
        meaning = "cannot be read"
    elif level >= 3:
        meaning = f"forbids perf_event_open to {who}"
    elif level == 2:
        meaning = f"lets {who} measure its own processes in user space, not in the kernel"
    elif level >= 0:
        meaning = f"lets {who} measure its own processes, the kernel's part too"
    else:
        meaning = "lets everyone measure everything"
    text = f"perf_event_paranoid {'?' if level is None else level} {meaning}"
    if machine.user_namespace:
        text += "; rights within a user namespace do not count for perf"
    if any(probed.state == "counts" for probed in facts.survey.software):
        limited = level is not None and level >= 2 and not machine.privileged
        area.add(OK, "perf events", text, *(sysctl(machine)[:1] if limited else ()))
        return area
    paranoid = any(probed.error == errno.EACCES for probed in facts.survey.software)
    area.add(
        GAP,
        "perf events",
        f"{refusal(facts)}; {text}",
        *(sysctl(machine) if paranoid else unlock(machine)),
        still="lotus trace and report; exact times of every operation",
        asks=unlock_asks(machine),
    )
    return area


def _counters(facts: MachineFacts) -> list[Finding]:
    survey, machine, area = facts.survey, facts.system, _Area("counters")

    def named(state: str) -> str:
        usual = (*survey.hardware, *survey.software)
        return ", ".join(probed.event.name for probed in usual if probed.state == state)

    if named("counts"):
        area.add(OK, "count", named("counts"))
    if named("zero"):
        area.add(
            GAP, "count nothing", f"{named('zero')}: open, but read 0 where a count is certain",
            "sudo dmesg | grep -i -e pmu -e perf   # may say why",
            still="the others; these are left out, not shown as 0",
        )  # fmt: skip
    if named("refused"):
        _refused(facts, named("refused"), area)
    if named("absent"):
        area.add(NOTE, "absent", named("absent"))
    if survey.capacity.right:
        _capacity(facts, area)
    elif any(probed.state == "counts" for probed in survey.software):
        working = [probed.event.name for probed in survey.software if probed.state == "counts"]
        still = f"{', '.join(working)} of each operation exactly; functions, sampled by the clock"
        text = why_no_hardware(facts)
        if any(probed.state == "refused" for probed in survey.hardware):
            area.add(GAP, "hardware", text, *sysctl(machine), still=still)
        elif machine.virtual:
            text += "; only its host can pass them on"
            area.add(GAP, "hardware", text, still=still, asks=host_asks(machine))
        else:
            fix = "sudo dmesg | grep -i -e pmu -e perf   # says why"
            area.add(GAP, "hardware", text, fix, still=still)
    if survey.read is not None:
        area.add(NOTE, "cost", f"{survey.read.read_ns / 1e3:.2f} µs a reading of the group")
    return area


def _refused(facts: MachineFacts, names: str, area: _Area) -> None:
    machine = facts.system
    if not any(probed.state == "counts" for probed in facts.survey.software):
        area.add(NOTE, "refused", names)  # The findings on rights give the reason and the fix.
    elif machine.privileged or machine.paranoid is None or machine.paranoid < 2:
        area.add(NOTE, "refused", f"{names}: the kernel does not allow it to this user")
    else:
        text = f"{names}: perf_event_paranoid {machine.paranoid} lets this user count nothing"
        text += " within the kernel, where it happens" if "context_switches" in names else ""
        area.add(NOTE, "refused", text, *sysctl(machine)[:1])


def _capacity(facts: MachineFacts, area: _Area) -> None:
    machine, capacity, counting = facts.system, facts.survey.capacity, facts.counting
    if capacity.right < capacity.announced:
        area.add(
            NOTE, "at once",
            f"{capacity.announced} hardware events open as one group, {capacity.right} count "
            f"correctly ({', '.join(capacity.wrong)} did not): at most {capacity.right} are used",
        )  # fmt: skip
    else:
        least = "" if capacity.bounded else "at least "
        text = f"{least}{capacity.right} hardware events in a group, each as when alone"
        area.add(OK, "at once", text)
    if capacity.running < 0.99:
        area.add(
            GAP, "shared",
            f"a group ran {capacity.running:.0%} of the time: something else uses counters (another"
            " profiler?)", "pgrep -a perf   # and end it",
            still="counting, scaled and marked as such",
        )  # fmt: skip
    if machine.watchdog == 1:
        area.add(
            GAP, "NMI watchdog", "holds one counter of every core",
            "sudo sysctl kernel.nmi_watchdog=0", still=f"{capacity.right} events at once",
        )  # fmt: skip
    names = ", ".join(event.name for event in counting.events) or "none"
    level = "level 1 of top-down" if counting.level_1 else "no level 1 of top-down"
    state = OK if counting.level_1 else NOTE
    area.add(state, "set", f"{counting.uarch}, {level}: {names}")
    for note in counting.notes:
        area.add(NOTE, "set", note)
    if machine.rdpmc is not None:
        allowed = "allowed" if machine.rdpmc else "not allowed"
        area.add(NOTE, "rdpmc", f"{machine.rdpmc} ({allowed}); lotus reads by system call")


def _sampling(facts: MachineFacts) -> list[Finding]:
    machine, survey, area = facts.system, facts.survey, _Area("sampling")
    _perf(facts, area)
    counts = any(
        probed.event.name == "cycles" and probed.state == "counts" for probed in survey.hardware
    )
    for sampler in survey.samplers:
        if sampler.samples:
            area.add(OK, sampler.event.name, _price(sampler, bool(machine.virtual)))
        elif sampler.event.name == "cycles" and counts:
            text = "cycles can be counted but not sampled here: functions are sampled by the clock"
            area.add(NOTE, "cycles", text)
    if any(sampler.samples for sampler in survey.samplers):
        if all(sampler.monotonic for sampler in survey.samplers if sampler.samples):
            area.add(OK, "clock", "samples carry CLOCK_MONOTONIC, the clock of lotus")
        else:
            text = "the samples' clock is not CLOCK_MONOTONIC: they cannot be joined exactly"
            area.add(NOTE, "clock", text)
    rate = machine.max_sample_rate
    if rate is not None and rate < 997:
        area.add(
            GAP, "rate",
            f"the kernel allows {rate} samples a second (it lowers this when interrupts are slow)",
            "sudo sysctl kernel.perf_event_max_sample_rate=10000",
            still=f"sampling at {facts.sampling[1]} Hz",
        )  # fmt: skip
    if machine.mlock_kb is not None and machine.mlock_kb < 516 and not machine.privileged:
        area.add(
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
        area.add(
            NOTE, "kernel", f"names of its functions are hidden ({', '.join(why)})",
            f"sudo sysctl {' '.join(settings)}",
            still="all that happens in user space",
        )  # fmt: skip
    return area


def _perf(facts: MachineFacts, area: _Area) -> None:
    perf, machine = facts.perf, facts.system
    still = "lotus trace, report and --counters, none of which need perf"
    if not perf.version:
        text = f"{perf.path} does not run: {perf.trouble}" if perf.path else "is not on PATH"
        area.add(GAP, "perf", text, *install_perf(machine), still=still)
        return
    text = f"{perf.version} ({perf.path})"
    text += ", whose file has capabilities" if perf.capable else ""
    event, rate, _ = facts.sampling
    again = f"perf record -N -e {event} -F {rate} -k CLOCK_MONOTONIC -o /tmp/perf.data true"
    if perf.recorded is False:
        fixes = sysctl(machine) if machine.paranoid is not None and machine.paranoid > 1 else ()
        why = perf.trouble or "it does not say why"
        text += f" did not record: {why}"
        area.add(GAP, "perf", text, *fixes, f"{again}   # shows why", still=still)
    elif perf.recorded:
        area.add(OK, "perf", f"{text} records samples (tried)")
    elif perf.trouble:
        area.add(NOTE, "perf", f"{text} was tried, but {perf.trouble}", f"{again}   # to try it")
    else:
        area.add(NOTE, "perf", f"{text}, not tried")


def _price(sampled: ProbeSampling, virtual: bool) -> str:
    if sampled.interrupt_ns is None:
        return "samples; the cost of an interrupt is below the noise here"
    word = "cheap" if sampled.interrupt_ns < CHEAP_NS else "dear"
    share = sampled.interrupt_ns * 997 / 1e9
    if virtual:  # includes the host's activity, so more digits would be meaningless
        return (
            f"samples; roughly {max(sampled.interrupt_ns / 1e3, 1):.0f} µs an interrupt ({word}): "
            f"about {max(share, 0.01):.0%} of a core at 997 Hz; in a VM this differs from time to "
            "time"
        )
    return (
        f"samples; about {sampled.interrupt_ns / 1e3:.1f} µs an interrupt ({word}): "
        f"{share:.1%} of a core at 997 Hz"
    )


def _torch(facts: MachineFacts) -> list[Finding]:
    python, area = facts.python, _Area("python")
    if python is None or not python.version:
        return area
    if not any(library.package == "torch" for library in python.libraries):
        area.add(
            GAP, "torch",
            f"not installed for {python.path}, and lotus records loops over torch's DataLoader; "
            "activate the environment of your program, or install it",
            f"{shlex.quote(python.path)} -m pip install torch",
        )  # fmt: skip
    return area


def _symbols(facts: MachineFacts) -> list[Finding]:
    python, area = facts.python, _Area("symbols")
    if python is None or not python.version:
        area.add(NOTE, "python", "no interpreter on PATH could be run to list its libraries")
    else:
        area.add(NOTE, "python", f"{python.version} ({python.path})")
        for library in python.libraries:
            _library(library, area)
    if not facts.helpers.demangler:
        text = "libstdc++, which demangles C++ names, is not installed"
        fix = "sudo apt install libstdc++6   # Fedora: sudo dnf install libstdc++"
        area.add(GAP, "C++ names", text, fix, still="all functions, by their mangled names")
    return area


def _library(library: Library, area: _Area) -> None:
    name = Path(library.path).name
    if library.debug:
        area.add(OK, library.package, f"{name}: all functions have names, by a separate debug file")
        return
    text = f"{name}: {_SYMBOLS[library.symbols]}"
    if library.symbols == "all":
        area.add(OK, library.package, text)
        return
    still = "the library as a whole"
    if library.bounds:
        still = f"the others are grouped by where they begin, as {name}!0x59f00"
    if library.package == "libc":
        fixes = ("sudo apt install libc6-dbg   # Fedora: sudo dnf debuginfo-install glibc",)
        area.add(GAP, library.package, text, *fixes, still=still)
    else:  # there is nothing to install for a library in a wheel
        area.add(NOTE, library.package, text, still=still)


def _frames(facts: MachineFacts) -> list[Finding]:
    machine, area = facts.system, _Area("python frames")
    still, scope = "C and C++ functions by perf", machine.ptrace_scope or 0
    if facts.helpers.py_spy is None:
        text = "py-spy is not installed: no Python lines under operations"
        fix = py_spy_program.install()
        area.add(GAP, "py-spy", text, fix, still=still)
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
        area.add(GAP, "py-spy", text, *fixes, still=still)
    else:
        area.add(OK, "py-spy", facts.helpers.py_spy)
    return area


def _space(facts: MachineFacts) -> list[Finding]:
    machine, room, area = facts.system, facts.room, _Area("room")
    if room.shm_bytes is not None:
        text = f"/dev/shm has {room.shm_bytes / 2**30:.1f} GiB free"
        if room.shm_bytes >= _SHM_BYTES:
            area.add(OK, "shared memory", text)
        else:
            text += ": workers that send large batches may die of SIGBUS"
            fixes = ["sudo mount -o remount,size=8G /dev/shm"]
            if machine.container in ENGINES:
                fixes.insert(0, f"{machine.container} run --shm-size 8g ...")
            area.add(GAP, "shared memory", text, *fixes)
    if not room.writable:
        text = f"no file can be made in {room.folder}, where runs are written by default"
        area.add(GAP, "disk", text, "lotus trace -o /another/folder/RUN ...")
    elif room.disk_bytes is not None:
        text = f"{room.disk_bytes / 2**30:.1f} GiB free in {room.folder}"
        if room.disk_bytes >= _DISK_BYTES:
            area.add(OK, "disk", text)
        else:
            area.add(GAP, "disk", text, "lotus trace -o /another/disk/RUN ...")
    return area
