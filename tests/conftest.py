"""What all tests start from, however they were started.

Hypothesis tries the same examples at every run; HYPOTHESIS_PROFILE=search looks for new ones.
"""

import gc
import os
import signal
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from lotus.common.text import decoder_name
from tests import warm

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# nohup and a shell's background jobs ignore these, and so would every program that a test starts.
for _name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name)
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _decoder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the decoder that runs of an earlier one had."""
    monkeypatch.setattr(decoder_name, "_known", set())


def _files(folder: str, names: str) -> list[str]:
    """The test files of a folder, by names as `room/name` or `name`."""
    paths = [name.rpartition("/") for name in names.split()]
    return [f"tests/{folder}/{room}{slash}test_{name}.py" for room, slash, name in paths]


# Files whose tests look at runs of the same programs.
_TOGETHER = {
    file: f"{folder} {names}"
    for folder, names in (
        ("integration/records", "counters operations parity records"),
        ("integration", "report/export ranks/pins_and_ranks"),
        ("faults", "counters kills"),
    )
    for file in _files(folder, names)
}


# Of tests/integration: what looks at nothing that another torch does in another way, which is what
# `make test-compat` is for. A file that is not named here runs there: with its own torch's hooks,
# iterators, workers, DistributedDataParallel, modes, settings and trials.
_ON_ANY_TORCH = {
    file: why
    for why, names in (
        (
            "what is written and drawn of a run, whatever recorded it",
            "verdict/causes report/compare docs/documented_commands report/export report/html",
        ),
        (
            "how programs and recorders start and end",
            "trace/environments trace/launch trace/launch_signals trace/recorders",
        ),
        ("the same", "trace/recorders_failing trace/recorders_py_spy"),
        ("perf's samples of a process", "map/map attach/attach_perf"),
        ("read positions of files, which the kernel keeps", "tune/tune_files"),
        ("what is seen from outside, in lotus's own files", "top/top top/top_screen"),
        ("causes of programs, as in test_causes.py", "verdict/diagnosis"),
        ("runs of `lotus run`, whose settings test_settings.py looks at", "settings/sweep"),
        ("this machine; models of a loader", "trace/doctor tune/whatif"),
        ("they need what is not installed there", "docs/notebooks"),
        ("who may look at a process, and what is said as it hangs or ends", "attach/attach_ends"),
        ("the same", "attach/attach_rights"),
        ("runs that simulation wrote, and commands that read them", "report/interrupted_reading"),
        ("the small torch stands in for it", "docs/pull_request"),
        ("test_workload_scripts.py runs each of its scripts there", "docs/demo"),
        ("files, words and exit codes; test_tune.py has the trials", "tune/tune_command"),
        ("the same", "tune/tune_output"),
        ("what ends with the program, whatever it trains", "tune/tune_ending"),
    )
    for file in _files("integration", names)
}
# Of these files, the tests that `make test-compat` runs, by a part of their names. The others look
# at processes, words and files of lotus, or at what the kernel counts.
_OF_TORCH = {
    file: tuple(parts.split())
    for names, parts in {
        "attach/attach": "planted_cause comprehension agent_of_a_job",
        "records/counters": "random_state every_kind failures_look",
        "map/isolating": "has_its_own without_operations is_decoded neither_trains two_ranks",
        "advise/planned_blocks": "is_planned in_all_blocks",
        "advise/sample_caching": "are_equal cannot_be_cached prints_stays ranks_share",
    }.items()
    for file in _files("integration", names)
}
# `export --with` merges what torch.profiler writes, in each torch with a clock of its own.
_OF_ITS_PROFILER = "test_chrome_is_merged_with_a_trace_of_the_profiler"

# What runs only in `make test-nightly`: a test, with or without its parameters, and why the rest
# of the suite does without it.
_NIGHTLY = {
    "tests/integration/docs/test_notebooks.py::test_it_runs_from_clean[05_advice]": (
        "test_advise.py and test_plan.py run its commands"
    ),
    (
        "tests/integration/verdict/test_diagnosis.py"
        "::test_the_planted_causes_of_two_corpora_are_named"
    ): "it takes minutes, and twelve programs of all kinds are part of the suite",
}

# Of tests/unit: what `make test-fast` leaves out, as it needs torch or takes seconds by itself.
_SLOW = {
    file
    for folder, names in {
        "advise/alternatives": "applied_alternatives tried_alternatives",
        "compare": "comparison",
        "format": "run_claim",
        "inside/common": "signal_handlers",
        "inside/isolate": "data_habits",
        "inside/trace/fetches": "sample_digests",
        "inside/tune/candidates/trials": "trials",
        "inside/tune/feeds": "repeated_batches",
        "inside/tune/observation": "quiet_steps",
        "native_map/estimate": "count_estimates",
        "native_map/paper": "importers_fuzz",
        "native_map/recording": "perf_data_damage perf_data_fuzz",
        "native_map/symbols": "elf_fuzz",
        "native_map": "hostile_files",
        "plot": "plot",
        "reading": "counter_damage damaged_runs every_byte hostile_runs",
        "reporters/run": "end_of_trace",
        "schemas": "schemas",
        "tools": "fuzz",
        "tools/bench/gains": "advise_demos",
        "tools/bench/overhead": "overhead",
        "workloads": "audio detection segmentation text tiny_images",
    }.items()
    for file in _files(f"unit/{folder}", names)
}


# Of tests/integration, what takes long and comes late by name: begun first, so that no process
# waits for it at the end.
_FIRST = {
    *_files("integration", "advise/sample_caching settings/settings docs/workload_scripts"),
    *_files("integration/tune", "tune tune_train"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="unit tests of seconds, without torch")
    parser.addoption("--of-torch", action="store_true", help="what depends on torch's version")
    parser.addoption("--nightly", action="store_true", help="what `make test` leaves out, alone")


class _WithoutTorch(MetaPathFinder):
    """Whoever imports torch all the same fails; libraries that look for it find none."""

    def find_spec(self, name: str, *args: object) -> None:
        if name == "torch":
            raise ModuleNotFoundError("torch is not imported with --fast", name=name)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        sys.meta_path.insert(0, _WithoutTorch())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast the slow files are not even imported: they may import torch."""
    if config.getoption("--fast") and collection_path.name.endswith(".py"):
        return str(collection_path.relative_to(config.rootpath)) in _SLOW or None
    return None


def _is_nightly(item: pytest.Item) -> bool:
    return item.nodeid in _NIGHTLY or item.nodeid.partition("[")[0] in _NIGHTLY


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what is to run: without --nightly all but its tests; with --of-torch those of torch."""
    nightly = config.getoption("--nightly")
    kept = [item for item in items if _is_nightly(item) == nightly]
    if config.getoption("--of-torch"):
        kept = [item for item in kept if _is_of_torch(item)]
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = sorted(kept, key=lambda item: _file(item) not in _FIRST)


def _is_of_torch(item: pytest.Item) -> bool:
    if _file(item) in _ON_ANY_TORCH:
        return item.name.startswith(_OF_ITS_PROFILER)
    name = item.name.partition("[")[0]
    return any(part in name for part in _OF_TORCH.get(_file(item), ("",)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_finish() -> None:
    """What was imported to find the tests stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries print what they miss in their end


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Any:
    """A program that lotus starts in this process takes SIGCHLD, for which torch has set a handler:
    once, for all its loaders. It is put back."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        return (yield)
    finally:
        if callable(before):
            signal.signal(signal.SIGCHLD, before)


def _processor_s() -> float:
    """Processor time of this process, the children that it has waited for, and warm programs."""
    return sum(os.times()[:4]) + warm.processor_s()


_counted_s = [0.0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """Notes in each report the processor time since the report before it."""
    report = yield
    now = _processor_s()
    report.processor_s, _counted_s[0] = now - _counted_s[0], now
    return report


def pytest_runtest_logstart() -> None:
    """What collecting took, and other tests' ends, is no test's time."""
    _counted_s[0] = _processor_s()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the ten files that took longest."""
    wall_s: dict[str, float] = {}
    processor_s: dict[str, float] = {}
    tests: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                wall_s[file] = wall_s.get(file, 0.0) + report.duration
                processor_s[file] = processor_s.get(file, 0.0) + getattr(report, "processor_s", 0.0)
                tests[file] = tests.get(file, 0) + (report.when == "call")
    slowest = sorted(wall_s, key=wall_s.__getitem__, reverse=True)[:10]
    if sum(tests.values()) < 2:
        return
    terminalreporter.write_sep("=", "ten slowest files")
    terminalreporter.write_line("   wall   processor   tests")
    for file in slowest:
        terminalreporter.write_line(
            f"{wall_s[file]:6.1f} s  {processor_s[file]:7.1f} s  {tests[file]:6}  {file}"
        )
    total_s = sum(processor_s.values())
    terminalreporter.write_line(f"{total_s:.0f} s of processor time in {len(tests)} files")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (`-n 2`) the tests of a file stay in one: they share what it made."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _TOGETHER.get(file, file)

    config.option.loadscopereorder = False  # as collected: those that start programs come first
    return ByFile(config, log)
