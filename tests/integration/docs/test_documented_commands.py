"""Every command of the documentation and of the help is run here, by another test, or has a reason.

Commands are held apart by their form: the verb and its options, without values and files.
"""

import ast
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from lotus.settings import share_plan
from lotus.settings.share_plan import SharePlan
from tests import documented
from tests.integration.called import called
from tests.simulation import simulate
from tests.unit.balance import test_job_whatif

RECORDED = documented.ROOT / "traces" / "classification" / "runs" / "workers2-0"

# Form: the same command on recorded runs.
RUN_HERE = {
    "balance -o": "balance job -o made.json",
    "balance --also": "balance job --also job-2",
    "balance --json": "balance job --json",
    "balance --most": "balance job --most 0=12",
    "balance --strategy": "balance job --strategy bno",
    "compare": "compare A1,A2 B1,B2",
    "compare --fail-above": "compare 'A*' 'B*' --fail-above 5%",
    "compare --fail-above --metric": "compare A1 B1 --fail-above 10% --metric operation:Loader",
    "compare --html": "compare A1 B1 --html compare.html",
    "compare --json": "compare A1 B1 --json",
    "doctor --all": "doctor --all",
    "export --format": "export A1 --format perfetto",
    "export --format -o": "export A1 --format csv -o tables",
    "map": f"map {RECORDED}",
    "map --json": f"map {RECORDED} --json",
    "report": "report A1",
    "report --html": "report A1 --html report.html",
    "report --json": "report A1 --json",
    "report --markdown": "report A1 --markdown",
    "report --threshold": "report A1 --threshold 500",
    "run --print --settings": "run --settings balance.json --print",
    "schema": "schema report",
    "top": "top A1",
    "top --json": "top --json A1",
    "top --once": "top --once A1",
    "whatif --also --workers": "whatif A1 --also W1 --workers 4",
    "whatif --cores --speedup --workers": "whatif A1 --workers 8 --cores 64 --speedup ToTensor=2",
    "whatif --cores --workers": "whatif A1 --workers 16 --cores 64",
    "whatif --gradients --link-bandwidth --ranks": (
        "whatif job --ranks 64 --gradients 100MB --link-bandwidth 10GB/s"
    ),
    "whatif --latency --workers": "whatif A1 --workers 32 --latency 20ms",
    "whatif --persistent": "whatif A1 --persistent",
    "whatif --plan --ranks": "whatif job --ranks 2 --plan balance.json",
    "whatif --prefetch --workers": "whatif A1 --workers 16 --prefetch 4",
    "whatif --ranks": "whatif job --ranks 64",
}

# How such a command of a comparison ends where it was slower.
ENDINGS = {"compare --fail-above": (0, 1), "compare --fail-above --metric": (0, 1)}

# File of tests: form: the test that runs it.
RUN_BY = {
    "integration/advise/test_advise.py": {
        "advise": "test_without_ceilings_the_program_is_started_again_for_other_ways",
        "advise --ceilings": "test_the_ceiling_is_what_the_sleeps_say",
        "advise --ceilings --json": "test_the_ceiling_is_what_the_sleeps_say",
    },
    "integration/advise/test_alternatives.py": {
        "run --allow --settings": "test_batches_are_equal_or_as_near_as_was_allowed",
    },
    "integration/attach/test_attach.py": {
        "attach": "test_in_a_container_the_only_program_and_from_the_host",
        "attach --json": "test_the_agent_of_a_job_stands_for_all_ranks",
        "attach --seconds": "test_the_planted_cause_is_first",
    },
    "integration/attach/test_attach_perf.py": {
        "attach --perf": "test_functions_stand_under_their_operations",
    },
    "integration/docs/test_demo.py": {
        "demo": "test_the_demo_ends_with_the_report_and_the_paths",
        "demo --list": "test_the_list_says_what_there_is_and_where",
        "demo --samples --workers -o": "test_a_demo_is_made_larger_by_its_scale",
        "demo --scale --workers --workload": "test_a_demo_is_made_larger_by_its_scale",
    },
    "integration/trace/test_doctor.py": {
        "doctor": "test_it_says_first_what_can_be_measured_and_ends_well",
        "doctor --json": "test_the_document_agrees_with_what_the_kernel_does",
    },
    "integration/report/test_export.py": {
        "export --format --with -o": "test_chrome_is_merged_with_a_trace_of_the_profiler",
    },
    "integration/trace/test_launch.py": {
        "trace": "test_without_a_name_the_run_is_named_after_the_script",
        "trace --batches --max-log": (
            "test_a_traced_program_inside_a_traced_program_has_settings_of_its_own"
        ),
        "trace -o": "test_a_program_that_loads_data_gets_a_report_and_the_next_command",
        "trace -q": "test_the_programs_bytes_are_its_own",
    },
    "integration/trace/test_levels.py": {
        "trace --level": "test_op_cpu_level_adds_what_the_kernel_tells",
        "trace --level -o": "test_op_cpu_level_adds_what_the_kernel_tells",
    },
    "integration/map/test_map.py": {
        "map --perf-data": "test_samples_of_another_program_are_none_of_ours",
        "map apply": "test_build_and_apply",
        "map apply --run": "test_apply_to_what_perf_reports",
        "map build -o": "test_build_and_apply",
        "map validate": "test_validate_holds_samples_against_counts",
        "map validate --mapping": "test_validate_judges_a_mapping_too",
        "trace --counters --perf": "test_every_sample_is_in_the_books_and_in_the_functions",
        "trace --counters --perf --perf-kernel -o": "test_validate_holds_samples_against_counts",
        "trace --counters --perf -o": "test_every_sample_is_in_the_books_and_in_the_functions",
    },
    "integration/ranks/test_modes.py": {
        "run --every --mode": "test_the_command_line_alone_puts_a_mode_on",
    },
    "integration/records/test_operations.py": {
        "trace --op": "test_functions_and_methods_by_name",
    },
    "integration/advise/test_plan.py": {
        "plan": "test_pictures_can_be_kept_up_to_the_first_random_operation",
    },
    "integration/settings/test_settings.py": {
        "run --settings": "test_the_program_ends_as_without_lotus",
    },
    "integration/advise/test_shared_samples.py": {
        "plan --known": "test_a_plan_counts_what_another_loader_has_cached",
    },
    "integration/settings/test_sweep.py": {
        "sweep --repeat --workers -o": (
            "test_an_interrupted_sweep_stops_with_the_run_that_was_going_on"
        ),
        "sweep --resume": "test_a_setting_that_fails_is_told_and_the_sweep_goes_on",
        "sweep --workers -o": "test_a_setting_that_fails_is_told_and_the_sweep_goes_on",
    },
    "integration/top/test_top.py": {
        "top --stacks": "test_stacks_name_the_line",
    },
    "integration/tune/test_tune.py": {
        "run": "test_the_command_finds_what_a_program_that_waits_needs",
        "tune": "test_the_command_finds_what_a_program_that_waits_needs",
    },
    "integration/tune/test_tune_command.py": {
        "tune --apply": "test_a_command_line_that_applies_starts_a_second_time",
    },
    "integration/docs/test_workload_scripts.py": {
        "demo --workload": "test_a_traced_demo_has_every_operation_of_every_sample",
    },
    "unit/commands/test_cli.py": {
        "completion": "test_a_shell_completes_verbs_and_options",
    },
    "unit/recording/test_run_merge.py": {
        "merge -o": "test_all_times_are_on_the_first_hosts_clock",
    },
    "unit/settings/test_sample_caches.py": {
        "cache ls": "test_the_table_names_folders_and_totals",
        "cache ls --json": "test_the_table_names_folders_and_totals",
        "cache rm": "test_caches_are_removed_by_name_path_and_age",
        "cache rm --all": "test_what_is_no_cache_is_not_listed_and_not_removed",
        "cache rm --unused-for": "test_caches_are_removed_by_name_path_and_age",
    },
}

# What no test runs, and why.
_PARSED = "only parsed: the verb is run without these options, and each run of it takes seconds"
NOT_RUN = {
    "advise --budget --ceilings --loader": _PARSED,
    "advise --only": _PARSED,
    "advise --skip": _PARSED,
    "export --format --weight -o": "needs counters; parsed only",
    "plan --disk --folder --ram": _PARSED,
    "report --open": "opens a browser; run without one in tests/unit/reading/test_recent_runs.py",
    "sweep --prefetch --repeat --workers -o": _PARSED,
    "sweep --workers": "written to lotus-runs; the same with -o is run",
    "tune --budget --loader": _PARSED,
    "tune --objective --vary": _PARSED,
}

# Blocks begin such lines that start something other than lotus; no test runs them, and why.
OTHERS = {
    "pip install": "needs a network; tools/bench/speed/newcomer.py and `make dist-check` do it",
    "make demo": "downloads torch; `lotus demo` is run",
    "make test": "is the suite itself",
    "tools/silicon.sh": "needs a machine with counters; tests/unit/tools/test_silicon.py runs it",
    "git worktree": "changes the repository",
    "for round": "measures for minutes; bench/test_pyperf_runner.py of tests/unit/tools/ runs it",
    "python train.py": "is the tutorial's program without lotus",
    ".venv/bin/python -m pyperf": "is pyperf's own command",
    "nsys profile": "needs a GPU's profiler; lotus trace --nvtx is run",
    "vtune -collect": "needs VTune",
}
_STARTS = r"pip|make|tools/|git|for round|python|\.venv|nsys|vtune|docker|podman|sudo|sysctl|mount"


def form(words: list[str]) -> str:
    """The verb and its options in order, without values, files and the program that it starts."""
    own = words[: words.index("--")] if "--" in words else words
    options = {word.partition("=")[0] for word in own[1:] if re.match("--?[a-z]", word)}
    return " ".join([own[0], *sorted(options)])


def shown() -> dict[str, list[str]]:
    """Each form with the lines that have it."""
    lines = [line for page in documented.PAGES for line in documented.typed(page)]
    lines += [line for verb in documented.VERBS for line in documented.examples(verb)]
    forms: dict[str, list[str]] = {}
    for line in lines:
        for words in documented.commands(line):
            forms.setdefault(form(words), []).append(line)
    return forms


def test_each_command_that_is_shown_has_one_entry() -> None:
    entries = [*RUN_HERE, *itertools.chain(*RUN_BY.values()), *NOT_RUN]
    assert len(entries) == len(set(entries))
    assert set(shown()) == set(entries)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs under the names that the commands have."""
    folder = tmp_path_factory.mktemp("documented")
    for name in ("A1", "A2", "B1", "B2"):
        simulate(folder / name, batches=16)
    simulate(folder / "W1", workers=1, batches=16)
    for name in ("job", "job-2"):
        test_job_whatif.recorded(folder / name, 20, 60)
    share_plan.write(folder / "balance.json", SharePlan((12, 4), "lotus"))
    return folder


@pytest.mark.parametrize("name", RUN_HERE)
def test_it_ends_well_on_a_recorded_run(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(RUN_HERE[name])
    assert form(next(documented.commands(f"lotus {RUN_HERE[name]}"))) == name
    monkeypatch.chdir(folder)
    ended = called(*words)
    assert ended.returncode in ENDINGS.get(name, (0,)), ended.stderr
    if "--json" in words:
        json.loads(ended.stdout)
    if "-o" in words or "--html" in words:
        assert Path(words[-1]).exists()
    assert ended.stdout


def test_what_runs_a_command_exists_and_names_its_options() -> None:
    for file, tests in RUN_BY.items():
        text = (documented.ROOT / "tests" / file).read_text("utf-8")
        there = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        assert set(tests.values()) <= there, file
        for option in re.findall(r"--[a-z-]+", " ".join(tests)):
            assert option in text, f"{option} in {file}"


def test_each_other_command_has_a_reason() -> None:
    blocks = [
        line
        for page in documented.PAGES
        for line in re.findall(r"^ {4}(\S.*)$", page.read_text("utf-8"), re.M)
    ]
    others = {line for line in blocks if re.match(rf"(?:{_STARTS})[ \w./]", line)}
    assert [line for line in others if not line.startswith(tuple(OTHERS))] == []
    for begin in OTHERS:
        assert any(line.startswith(begin) for line in others), begin
