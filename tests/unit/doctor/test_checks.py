"""What lotus doctor says of machines that are not this one."""

import dataclasses
import errno
import io
import json
import sys
from pathlib import Path

import pytest

from lotus.doctor import checks, environment, examination
from lotus.doctor.checks import NOTE, OK
from lotus.doctor.environment import Library, OptionalTools, PerfTool, Python, Room
from lotus.hardware.counter_probe import CYCLES, GENERIC, Capacity
from lotus.hardware.event_selection import Chosen
from lotus.hardware.sampling_probe import ProbeSampling
from lotus.reporters import doctor_report as reporter
from lotus.reporters.base.console import plain_console
from tests.unit.machines import NO_PMU, WHOLE, counted, fixes, gaps, machine, nothing_opens


def test_a_machine_that_lacks_nothing_has_no_gaps():
    assert gaps(WHOLE) == {}
    summary = examination.report(WHOLE).summary
    assert summary["counting"] == "yes: 6 hardware events at once"
    assert summary["sampling"].startswith("yes: cycles:u at 997 Hz")
    assert summary["top-down"] == "yes: level 1 (amd_zen5)"


def test_every_gap_has_a_command_or_someone_to_ask_and_names_what_works():
    everything_wrong = dataclasses.replace(
        machine(
            paranoid=4, watchdog=1, ptrace_scope=1, max_sample_rate=500, mlock_kb=64, seccomp=True,
            container="docker", virtual="QEMU",
        ),
        perf=PerfTool(None),
        helpers=OptionalTools(),
        room=Room(1 << 20, 1 << 20, "/"),
    )  # fmt: skip
    surveys = [NO_PMU, *(nothing_opens(code) for code in (errno.EACCES, errno.EPERM, errno.ENOSYS))]
    for survey in (*surveys, dataclasses.replace(WHOLE.survey, clock_ns=2000.0)):
        by_topic = gaps(dataclasses.replace(everything_wrong, survey=survey))
        assert len(by_topic) > 6
        for finding in by_topic.values():
            assert finding.fixes or finding.asks, finding


# ── rights ───────────────────────────────────────────────────────────────────────────────────


def test_paranoid_4_is_closed_by_a_sysctl():
    facts = dataclasses.replace(machine(paranoid=4), survey=nothing_opens(errno.EACCES))
    finding = gaps(facts)["perf events"]
    assert finding.fixes[0] == "sudo sysctl kernel.perf_event_paranoid=1"
    assert "paranoid 4 forbids" in finding.text
    assert "lotus trace" in finding.meanwhile
    assert examination.report(facts).summary["counting"].startswith("no: perf_event_paranoid 4")


def test_a_seccomp_profile_is_closed_from_outside_the_container():
    facts = dataclasses.replace(
        machine(seccomp=True, container="docker"), survey=nothing_opens(errno.EPERM)
    )
    commands = fixes(facts, "perf events")
    assert "docker run --cap-add PERFMON" in commands
    assert "seccomp=" in commands
    assert "perf_event_open allowed" in commands
    assert "sysctl" not in commands
    assert "seccomp" in examination.report(facts).summary["counting"]


def test_root_is_given_commands_without_sudo_but_for_the_host():
    facts = dataclasses.replace(
        machine(paranoid=3, container="podman", uid=0, watchdog=1),
        survey=dataclasses.replace(nothing_opens(errno.EACCES), capacity=WHOLE.survey.capacity),
    )
    assert fixes(facts, "NMI watchdog") == "sysctl kernel.nmi_watchdog=0"
    assert "sudo sysctl kernel.perf_event_paranoid=1" in fixes(facts, "perf events")


def test_in_a_container_the_sysctl_is_the_hosts():
    facts = dataclasses.replace(
        machine(paranoid=3, container="podman"), survey=nothing_opens(errno.EACCES)
    )
    assert "on the host" in fixes(facts, "perf events")
    assert "podman run --cap-add PERFMON" in fixes(facts, "perf events")


def test_kubernetes_gets_a_security_context():
    facts = dataclasses.replace(
        machine(seccomp=True, container="kubernetes"), survey=nothing_opens(errno.EPERM)
    )
    finding = gaps(facts)["perf events"]
    assert "securityContext" in "\n".join((*finding.fixes, *finding.asks))


def test_a_kernel_without_perf_events_is_named():
    facts = dataclasses.replace(machine(paranoid=None), survey=nothing_opens(errno.ENOSYS))
    assert "kernel has no perf_event_open" in examination.report(facts).summary["counting"]


@pytest.mark.parametrize(
    ("level", "capabilities", "words"),
    [
        (2, (), "in user space, not in the kernel"),
        (2, ("PERFMON",), "does not bind"),
        (1, (), "the kernel's part too"),
        (-1, (), "everyone"),
    ],
)
def test_the_paranoid_level_is_said_in_words_for_this_user(level, capabilities, words):
    findings = examination.report(machine(paranoid=level, capabilities=capabilities)).findings
    finding = next(finding for finding in findings if finding.topic == "perf events")
    assert finding.state == OK
    assert words in finding.text


# ── counters ─────────────────────────────────────────────────────────────────────────────────


def test_a_vm_without_counters_asks_its_host():
    facts = dataclasses.replace(
        machine(virtual="QEMU Standard PC"),
        survey=NO_PMU,
        counting=Chosen("amd_zen5", (), False, ()),
        sampling=("cpu-clock:u", 997, "the software clock"),
    )
    finding = gaps(facts)["hardware"]
    assert "only its host can pass them on" in finding.text
    assert finding.fixes == ()
    assert any("pmu=on" in ask for ask in finding.asks)
    assert not any("VMware" in ask for ask in finding.asks)
    summary = examination.report(facts).summary
    assert summary["counting"] == "software events only: this VM has no counters"
    assert summary["sampling"].startswith("yes: cpu-clock:u")
    assert summary["top-down"].startswith("no: it needs hardware events")


def test_counters_that_are_announced_but_wrong_are_not_used():
    capacity = Capacity(6, 5, ("cycles",), 1.0, True)
    facts = dataclasses.replace(WHOLE, survey=dataclasses.replace(WHOLE.survey, capacity=capacity))
    report = examination.report(facts)
    assert report.summary["counting"] == "yes: 5 hardware events at once"
    finding = next(finding for finding in report.findings if finding.topic == "at once")
    assert "6 hardware events open as one group, 5 count correctly (cycles did not)" in finding.text


def test_an_event_that_counts_nothing_is_a_gap_and_not_among_those_that_count():
    hardware = (*counted(GENERIC[:3]), *counted(GENERIC[3:4], 0))
    facts = dataclasses.replace(WHOLE, survey=dataclasses.replace(WHOLE.survey, hardware=hardware))
    assert GENERIC[3].name in gaps(facts)["count nothing"].text
    good = next(
        finding for finding in examination.report(facts).findings if finding.topic == "count"
    )
    assert GENERIC[3].name not in good.text.split(", ")


def test_a_group_that_shares_its_counters_is_a_gap():
    capacity = Capacity(6, 1, (), 0.49, True)
    facts = dataclasses.replace(WHOLE, survey=dataclasses.replace(WHOLE.survey, capacity=capacity))
    assert "49%" in gaps(facts)["shared"].text


def test_the_nmi_watchdog_holds_a_counter():
    assert fixes(machine(watchdog=1), "NMI watchdog") == "sudo sysctl kernel.nmi_watchdog=0"
    # AND where there are no counters it holds none
    assert "NMI watchdog" not in gaps(dataclasses.replace(machine(watchdog=1), survey=NO_PMU))


def test_cycles_that_count_but_do_not_sample_are_told():
    samplers = (ProbeSampling(CYCLES, error=errno.EOPNOTSUPP), WHOLE.survey.samplers[1])
    facts = dataclasses.replace(WHOLE, survey=dataclasses.replace(WHOLE.survey, samplers=samplers))
    texts = [finding.text for finding in examination.report(facts).findings]
    assert any("counted but not sampled" in text for text in texts)


def test_interrupts_are_called_dear_where_they_are():
    def words(ns: float) -> str:
        samplers = (ProbeSampling(CYCLES, 20, monotonic=True, interrupt_ns=ns),)
        facts = dataclasses.replace(
            WHOLE, survey=dataclasses.replace(WHOLE.survey, samplers=samplers)
        )
        return next(
            finding.text
            for finding in examination.report(facts).findings
            if finding.topic == "cycles"
        )

    assert "40.0 µs an interrupt (dear): 4.0%" in words(40_000.0)
    assert "(cheap)" in words(1_500.0)


def test_in_a_vm_the_cost_of_an_interrupt_is_said_roughly():
    facts = machine(virtual="KVM")
    text = next(
        finding.text for finding in examination.report(facts).findings if finding.topic == "cycles"
    )
    assert "roughly 2 µs an interrupt (cheap): about 1% of a core" in text


@pytest.mark.parametrize(
    ("kptr", "paranoid", "capabilities", "why", "fix"),
    [
        (0, 2, (), "(perf_event_paranoid 2)", "kernel.perf_event_paranoid=1"),
        (1, 1, (), "(kptr_restrict 1)", "kernel.kptr_restrict=0"),
        (2, 2, ("SYSLOG",), "(kptr_restrict 2)", "kernel.kptr_restrict=0"),
        (
            1, 2, (), "(kptr_restrict 1, perf_event_paranoid 2)",
            "kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
        ),
        (0, 1, (), "", ""),
        (1, 2, ("SYSLOG",), "", ""),
    ],
)  # fmt: skip
def test_hidden_names_of_the_kernel_are_shown_by_what_hides_them(
    kptr, paranoid, capabilities, why, fix
):
    facts = machine(kptr_restrict=kptr, paranoid=paranoid, capabilities=capabilities)
    shown = [
        finding
        for finding in examination.report(facts).findings
        if (finding.area, finding.topic) == ("sampling", "kernel")
    ]
    assert [finding.text.endswith(why) for finding in shown] == ([True] if why else [])
    assert [finding.fixes for finding in shown] == ([(f"sudo sysctl {fix}",)] if why else [])


@pytest.mark.parametrize("paranoid", [1, 2])
def test_a_refused_event_comes_with_the_reason(paranoid):
    software = [
        dataclasses.replace(probed, count=None, running=0.0, error=errno.EACCES)
        if probed.event.name == "context_switches"
        else probed
        for probed in WHOLE.survey.software
    ]
    survey = dataclasses.replace(WHOLE.survey, software=tuple(software))
    facts = dataclasses.replace(machine(paranoid=paranoid), survey=survey)
    (finding,) = [
        finding for finding in examination.report(facts).findings if finding.topic == "refused"
    ]
    assert finding.text.startswith("context_switches: ")
    assert ("perf_event_paranoid 2" in finding.text) == (paranoid == 2)
    wanted = ("sudo sysctl kernel.perf_event_paranoid=1",) if paranoid == 2 else ()
    assert finding.fixes == wanted


# ── perf and what stands beside it ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "uid", "command"),
    [
        (("debian",), 1000, "sudo apt install linux-perf"),
        (("debian",), 0, "apt install linux-perf"),
        (("ubuntu", "debian"), 1000, "sudo apt install linux-tools-$(uname -r)"),
        (("linuxmint", "ubuntu", "debian"), 1000, "sudo apt install linux-tools-$(uname -r)"),
        (("rocky", "rhel", "fedora"), 1000, "sudo dnf install perf"),
        (("fedora",), 1000, "sudo dnf install perf"),
    ],
)
def test_a_missing_perf_is_installed_as_the_distribution_does(names, uid, command):
    facts = dataclasses.replace(machine(distribution=names, uid=uid), perf=PerfTool(None))
    assert gaps(facts)["perf"].fixes == (command,)
    assert "perf is missing" in examination.report(facts).summary["sampling"]
    assert "--counters" in gaps(facts)["perf"].meanwhile


def test_a_wrapper_without_its_perf_is_a_gap_in_its_own_words(tmp_path: Path, monkeypatch):
    wrapper = tmp_path / "perf"
    wrapper.write_text("#!/bin/sh\necho 'WARNING: perf not found for kernel 5.15' >&2\nexit 2\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    tool = environment.perf_tool(("cpu-clock:u", "997"))
    assert tool.path == str(wrapper)
    assert (tool.version, tool.recorded) == ("", None)
    gap = gaps(dataclasses.replace(WHOLE, perf=tool))["perf"]
    assert "perf not found for kernel 5.15" in gap.text


def _perf(folder: Path, monkeypatch, record: str) -> None:
    """A perf of version 9.9 that does this when it is to record."""
    script = folder / "perf"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo perf version 9.9; exit 0; }}\n{record}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_a_perf_that_cannot_record_says_why(tmp_path: Path, monkeypatch):
    _perf(tmp_path, monkeypatch, "echo 'No permission to enable cycles event.' >&2; exit 255")
    tool = environment.perf_tool(("cycles:u", "997"))
    assert (tool.version, tool.recorded) == ("9.9", False)
    facts = dataclasses.replace(machine(paranoid=2), perf=tool)
    assert "No permission" in gaps(facts)["perf"].text
    assert examination.report(facts).summary["sampling"].startswith("no:")


def test_a_trial_that_does_not_end_in_time_is_no_refusal(tmp_path: Path, monkeypatch):
    _perf(tmp_path, monkeypatch, "exec sleep 1000")
    ask = environment._ask

    def at_once(command):  # once it has started
        if command[1] == "record":
            monkeypatch.setattr(environment, "_PATIENCE_S", 0.01)
        return ask(command)

    monkeypatch.setattr(environment, "_ask", at_once)
    tool = environment.perf_tool(("cpu-clock:u", "997"))
    assert (tool.version, tool.recorded) == ("9.9", None)
    report = examination.report(dataclasses.replace(WHOLE, perf=tool))
    (note,) = [finding for finding in report.findings if finding.topic == "perf"]
    assert note.state == "note"
    assert "did not end within" in note.text
    assert report.summary["sampling"].startswith("yes:")


def test_a_trial_copies_no_programs_into_the_users_folder(tmp_path: Path, monkeypatch):
    _perf(tmp_path, monkeypatch, 'echo "$@" >&2; exit 1')
    assert "--no-buildid-cache" in environment.perf_tool(("cpu-clock:u", "997")).trouble.split()


def test_without_perf_on_the_path_there_is_none(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.perf_tool() == PerfTool(None)


def test_a_low_sample_rate_and_small_buffers_are_gaps():
    by_topic = gaps(machine(max_sample_rate=500, mlock_kb=64))
    assert "perf_event_max_sample_rate" in by_topic["rate"].fixes[0]
    assert "perf_event_mlock_kb" in by_topic["buffers"].fixes[0]


@pytest.mark.parametrize(
    ("scope", "capabilities", "gap"),
    [(None, (), False), (0, (), False), (1, (), True), (1, ("SYS_PTRACE",), False), (3, (), True)],
)
def test_py_spy_needs_the_right_to_look_into_other_processes(scope, capabilities, gap):
    facts = machine(ptrace_scope=scope, capabilities=capabilities)
    assert ("py-spy" in gaps(facts)) is gap
    if gap:
        assert "kernel.yama.ptrace_scope=0" in fixes(facts, "py-spy")


def test_what_is_not_installed_comes_with_its_installation(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/a b/lotus/.venv/bin/python")
    facts = dataclasses.replace(WHOLE, helpers=OptionalTools())
    assert fixes(facts, "py-spy") == "'/a b/lotus/.venv/bin/python' -m pip install py-spy"
    assert "libstdc++6" in fixes(facts, "C++ names")


def test_another_package_called_lotus_is_a_gap():
    tools = dataclasses.replace(WHOLE.helpers, namesakes=("lotus-ai 1.2.4",))
    (gap,) = [
        finding
        for finding in checks.findings(dataclasses.replace(WHOLE, helpers=tools))
        if finding.fixes
    ]
    assert (gap.state, gap.topic) == (checks.GAP, "package")
    assert "lotus-ai 1.2.4" in gap.text
    assert gap.fixes[0].endswith("pip uninstall lotus-ai lotus-profiler")


def test_another_package_called_lotus_that_this_one_hides_is_a_gap():
    tools = dataclasses.replace(WHOLE.helpers, hidden_namesakes=("lotus-ai 1.2.4",))
    found = checks.findings(dataclasses.replace(WHOLE, helpers=tools))
    (gap,) = [finding for finding in found if finding.topic == "package"]
    assert gap.state == checks.GAP
    assert "in another folder" in gap.text
    assert gap.fixes == ()


def test_little_shared_memory_is_a_gap():
    facts = dataclasses.replace(machine(container="docker"), room=Room(64 << 20, None, "/"))
    assert "--shm-size" in fixes(facts, "shared memory")


def test_a_python_without_torch_and_a_folder_without_rights_are_gaps():
    facts = dataclasses.replace(
        WHOLE,
        python=Python("/usr/bin/python", "3.11.2", ()),
        room=Room(8 << 30, 100 << 30, "/read-only", writable=False),
    )
    assert "/usr/bin/python -m pip install torch" in fixes(facts, "torch")
    assert "lotus trace -o " in fixes(facts, "disk")


def test_libraries_without_names_say_how_their_functions_are_shown():
    libraries = (
        Library("Pillow", "/x/libjpeg-1.so", "exported", True),
        Library("OpenCV", "/x/cv2.so", "none", False),
        Library("libc", "/x/libc.so.6", "exported", True),
        Library("libm", "/x/libm.so.6", "exported", True, debug=True),
    )
    facts = dataclasses.replace(WHOLE, python=Python("/usr/bin/python", "3.11.2", libraries))
    by_topic = {
        finding.topic: finding
        for finding in examination.report(facts).findings
        if finding.area == "symbols"
    }
    assert "libjpeg-1.so!0x59f00" in by_topic["Pillow"].meanwhile
    assert by_topic["OpenCV"].meanwhile == "the library as a whole"
    assert by_topic["Pillow"].state == NOTE  # nothing can be installed for a wheel's library
    assert "libc6-dbg" in by_topic["libc"].fixes[0]
    assert by_topic["libm"].state == OK


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def test_the_first_lines_are_the_summary_and_commands_are_whole():
    facts = dataclasses.replace(machine(paranoid=4), survey=nothing_opens(errno.EACCES))
    file = io.StringIO()
    reporter.write(plain_console(file), examination.report(facts))
    lines = file.getvalue().splitlines()
    assert lines[0].startswith("counting:  no: perf_event_paranoid 4")
    assert any(line.startswith("sampling: ") for line in lines[:4])
    assert any(line.startswith("top-down: ") for line in lines[:5])
    assert any(line.strip() == "$ sudo sysctl kernel.perf_event_paranoid=1" for line in lines)


@pytest.mark.parametrize(
    ("facts", "ending"),
    [
        (WHOLE, "No gaps."),
        (machine(watchdog=1), '1 gap. Type what follows "$".'),
        (
            dataclasses.replace(machine(virtual="KVM"), survey=NO_PMU),
            '1 gap. Ask your administrator for what follows "Ask for:".',
        ),
        (
            dataclasses.replace(machine(virtual="KVM"), survey=NO_PMU, helpers=OptionalTools()),
            '3 gaps. Type what follows "$"; ask your administrator for what follows "Ask for:".',
        ),
    ],
)
def test_the_last_line_says_where_the_cures_stand_that_there_are(facts, ending):
    file = io.StringIO()
    reporter.write(plain_console(file), examination.report(facts))
    lines = file.getvalue().splitlines()
    assert ending in " ".join(lines[-2:])
    assert all(len(line) <= 100 for line in lines if "$ " not in line)


def test_what_a_machine_calls_itself_cannot_steer_a_terminal():
    file = io.StringIO()
    reporter.write(plain_console(file), examination.report(machine(virtual="QEMU\x1b[31m\nevil")))
    assert "\x1b" not in file.getvalue()
    assert "\nevil" not in file.getvalue()


def test_the_document_is_json_with_the_facts():
    document = json.loads(json.dumps(examination.report(WHOLE).document()))
    assert document["schema"] == 2
    assert set(document["summary"]) == {"counting", "sampling", "top-down"}
    assert document["facts"]["survey"]["capacity"]["right"] == 6
    assert document["facts"]["survey"]["hardware"][0]["event"]["name"] == "cycles"
    first = document["findings"][0]
    assert set(first) == {"area", "topic", "state", "text", "fixes", "meanwhile", "asks"}
