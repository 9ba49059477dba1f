"""The schemas of lotus's documents, held against real documents of every kind.

A field that a document has and its schema has not fails here; so does a number that is no number.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import lotus
from lotus import cli
from lotus.analysis.attached.verdict import sampled_verdict
from lotus.analysis.counters.function_profile import summarise_map
from lotus.analysis.summary import summarise
from lotus.balance.split import SplitOptions, balance
from lotus.common.storage import files
from lotus.compare import gate
from lotus.doctor import examination
from lotus.format import manifest
from lotus.joining import sample_join
from lotus.mapping import function_mapping
from lotus.recording.perf_sidecar import Perf, Sampling
from lotus.recording.py_spy_sidecar import PySpy
from lotus.reporters.advise import cache_list_report, ceilings_report, plan_report
from lotus.reporters.compare import comparison_report
from lotus.reporters.live import top_report
from lotus.reporters.map import attribution_report, map_tables, validation_report
from lotus.reporters.ranks import balance_report as balancing
from lotus.reporters.ranks import job_report
from lotus.reporters.run import run_document
from lotus.reporters.run.attached import attached_report
from lotus.reporters.sweep import sweep_report
from lotus.reporters.tune import tune_report, whatif_report
from lotus.schemas import documents
from lotus.settings import sample_caches
from lotus.settings import share_plan as plan
from lotus.settings import tuned_file as settings_file
from lotus.settings.space import Setting
from lotus.sweep import sweep_plan
from lotus.tune.search.outcome.operation_costs import operation_costs
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from native_map.paper import paper_mapping as maps
from tests.logs import MS, RunBuilder
from tests.unit import machines, sampled_program, sides
from tests.unit.advise.alternatives import test_tried_alternatives
from tests.unit.advise.caches import test_cache_plan, test_cache_timing, test_shared_caches
from tests.unit.advise.ceilings import test_ceilings
from tests.unit.advise.costs import test_predicted_costs
from tests.unit.analysis.attached.tables import test_counted_threads, test_sampled_functions
from tests.unit.analysis.ranks import test_rank_verdict
from tests.unit.attach import test_attached_run
from tests.unit.balance import test_job_whatif
from tests.unit.joining.test_sample_join import AT, batch, every_ms, recording
from tests.unit.live.test_view import IDLE, at_sample
from tests.unit.many_ranks import Costs
from tests.unit.many_ranks import job as many_ranks
from tests.unit.mapping.test_function_mapping import a_mapping
from tests.unit.reporters import test_sweep_reports
from tests.unit.reporters.run import test_device_lines, test_report
from tests.unit.reporters.test_top_report import group, hung, running
from tests.unit.simulated import Plan
from tests.unit.tune.search.outcome import test_operation_costs
from tests.unit.tune.simulation import test_what_if
from tests.unit.tuned_program import Fake, find

TRACES = Path(__file__).parents[3] / "traces" / "classification"
RUNS = sorted(path.parent for path in TRACES.glob("runs/*/run.json"))

A_CACHE = sample_caches.ListedCache(
    Path("/cache"), 3, 12_288, 1.8e9, None, "Pictures", ("Resize",), 1, ("python", "t.py"), None
)

UNITS = {
    "_ns": "nanosecond", "_ms": "millisecond", "_s": "second", "_bytes": "byte", "_share": "0 to 1",
    "_ppb": "parts of", "_kb": "1,024 bytes",
}  # fmt: skip


def written(*words: str | Path) -> Callable[[pytest.CaptureFixture[str]], Any]:
    """What a command prints, as a program that reads it would have it."""

    def document(captured: pytest.CaptureFixture[str]) -> Any:
        assert cli.main([str(word) for word in words]) == 0
        return json.loads(captured.readouterr().out, parse_constant=lambda name: 1 / 0)

    return document


def with_functions() -> sampled_verdict.AttachedSummary:
    """A watched program with functions of perf."""
    program = sampled_program.Program(sampled_program.always(sampled_program.STEP))
    functions = test_sampled_functions.joined([("Decode", 30, (0, 1, 0, 0))], seconds=5)
    return dataclasses.replace(sampled_verdict.summarise(program.evidence()), functions=functions)


def with_counters() -> sampled_verdict.AttachedSummary:
    program = sampled_program.Program(sampled_program.always(sampled_program.STEP))
    counters = test_counted_threads.a_program()
    return sampled_verdict.summarise(dataclasses.replace(program.evidence(), counters=counters))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Documents of made-up tables, by schema."""
    folder = tmp_path_factory.mktemp("made")
    builder = RunBuilder(folder / "run")
    batch(builder.process(pid=100))
    run = lotus.load(builder.end(uarch="generic"))
    times = [AT - MS, *every_ms(), AT + 70 * MS]
    joined = sample_join.map_run(run, recording(times))
    joined = dataclasses.replace(joined, functions=joined.functions.assign(function="work"))
    measured = summarise_map(run, joined)
    python = pd.DataFrame(
        {"kind": ["operation"], "operation": "Decode", "function": "open", "file": "a.py",
         "line": 3, "self_ns": 10 * MS, "total_ns": 20 * MS, "samples": 2}
    )  # fmt: skip
    profile = folder / "report.txt"
    profile.write_text(REPORT)
    ranks = many_ranks([Costs(1.0), Costs(1.0, fetch=4.0)])
    test_attached_run.write(folder)
    return {
        "attach": [json.loads((folder / "attach.json").read_bytes())],
        "attached": [
            attached_report.document(sampled_verdict.summarise(program.evidence()))
            for program in (
                sampled_program.Program(
                    sampled_program.turns((sampled_program.WAIT, 1), (sampled_program.STEP, 1)),
                    [sampled_program.always(sampled_program.operation("Decode"))],
                ),
                sampled_program.Program(sampled_program.always(("outside", ""))),
            )
        ]
        + [
            attached_report.document(with_functions()),
            attached_report.document(with_counters()),
        ],
        "report": [
            run_document.document(summarise(test_report.hostile()), measured=measured),
            run_document.document(
                summarise(Plan(cpu=0.2, read_bytes=1 << 20, level="op+cpu").run())
            ),
            run_document.document(summarise(job())),
            run_document.document(summarise(test_device_lines.on_device())),
            run_document.document(summarise(test_rank_verdict.slow_input().run())),
            run_document.document(summarise(test_rank_verdict.job(steps=5).run())),
            run_document.document(summarise(lotus.load(RunBuilder(folder / "empty").end()))),
        ],
        "map": [map_tables.document(dataclasses.replace(measured, python=python))],
        "map-apply": [
            attribution_report.document(
                function_mapping.apply(a_mapping("work", "Decode", "Flip"), profile)
            )
        ],
        "map-validate": [
            validation_report.document(function_mapping.judge(joined)),
            validation_report.document(function_mapping.judge(joined, a_mapping("work", "Decode"))),
        ],
        "tune": [tune_report.document(tuned(), output=path) for path in (None, Path("tuned.json"))],
        "advise": [
            ceilings_report.document(test_ceilings.measured(program), others=others)
            for program, others in (
                (test_ceilings.Fed(), test_tried_alternatives.several()),
                (test_ceilings.Fed(refuses={"same": "a stream"}), None),
                (test_ceilings.Fed(interrupt_at=1), None),
            )
        ],
        "plan": [
            plan_report.document(test_cache_plan.several(), output=Path("plan.json")),
            plan_report.document(
                dataclasses.replace(
                    test_cache_plan.several(),
                    costs=test_predicted_costs.some(),
                    shared=test_shared_caches.shared_of(0.5).shared,
                    others=test_shared_caches.OTHERS,
                )
            ),
            plan_report.document(
                test_cache_timing.planned(test_cache_timing.timing(*test_cache_timing.EVEN))
            ),
            plan_report.document(
                test_cache_plan.chosen_of(refused="its data set is iterable", length=None)
            ),
        ],
        "cache": [
            cache_list_report.document([]),
            cache_list_report.document([A_CACHE, dataclasses.replace(A_CACHE, dropped="why")]),
        ],
        "compare": [compared(), comparison_report.document([sides.hostile()])],
        "report-sweep": [
            sweep_report.document(test_sweep_reports.summary_of(made_in(folder / name), **options))
            for name, options in (
                ("plain", {}), ("counted", {"counted": True, "prefetch": (1, 2)}),
                ("once", {"repeat": 1}),
            )
        ],
        "top": [
            top_report.document(view, run="R", stacks={102: ["f (x.py:1)"]})
            for view in (running(hung([IDLE, at_sample()])), running(group([IDLE])), running())
        ],
        "doctor": [
            examination.report(facts).document()
            for facts in (
                machines.WHOLE,
                dataclasses.replace(machines.WHOLE, survey=machines.NO_PMU, python=None),
            )
        ],
        "whatif": [
            whatif_report.document(test_what_if.reply(latency_ns=20e6)),
            whatif_report.document(test_what_if.reply(Plan(workers=0), num_workers=2, cores=64)),
        ],
        "run": run_files(),
        "sweep": [sweep_file(folder / "sweep")],
        "tuned": [tuned_file(folder / "tuned.json"), advised_file(folder / "advice.json")],
        "mapping": [json.loads(maps.to_json(a_mapping("work", "Decode")))],
        "balance-report": [
            balancing.document(balance(ranks, SplitOptions(strategy)))
            for strategy in ("lotus", "bno")
        ],
        "whatif-ranks": [job_report.document(test_job_whatif.answered(64))],
        "balance": [plan.document(plan.SharePlan((3, 5), "lotus", settings_file.Target(number=0)))],
    }  # fmt: skip


REPORT = """\
# Samples: 2K of event 'cpu-clock'
# Event count (approx.): 100
#
# Overhead       Samples  Command  Shared Object  Symbol
# ........  ............  .......  .............  ......
#
    90.00%            90  python   libwork.so     [.] work
    10.00%            10  python   libother.so    [.] rest
"""


def made_in(folder: Path) -> Path:
    folder.mkdir()
    return folder


def job() -> Any:
    """A run of two ranks."""
    run, other = Plan().run(), Plan(rank=1, operations={"Loader": 4.0}).run()
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        both = [getattr(run, name), getattr(other, name)]
        setattr(run, name, pd.concat(both, ignore_index=True))
    return run


def tuned() -> Any:
    costs = operation_costs(test_operation_costs.run(), test_operation_costs.WORKERS)
    result = find(Fake(own=Setting(0)), Setting(2), Setting(4))
    shown = Checked(result.best, Speedup(2.0, 1.9, 2.1, 0), 30, 20)
    return dataclasses.replace(result, operations=costs, checked=shown)


def compared() -> dict[str, Any]:
    comparison = sides.held(sides.recorded(1), sides.recorded(2, 1.3))
    return comparison_report.document(
        [comparison], gate=gate.judge([comparison], "throughput", 0.05)
    )


def run_files() -> list[Any]:
    began = manifest.begin(["python", "train.py"], manifest.TraceSettings(), {"RANK": "1"})
    rank = {"rank": 0, "local_rank": 0, "world_size": 2, "host": "h", "pid": 7}
    perf = Perf(Sampling(("cpu-clock",), 997))
    recorders = {"perf": perf.note(), "py_spy": PySpy().note()}
    ended = manifest.end({**began, "recorders": recorders}, 0, None, began["start_ns"] + 1, [rank])
    return [began, ended, *(json.loads((path / "run.json").read_bytes()) for path in RUNS)]


def sweep_file(path: Path) -> Any:
    choices = {"num_workers": (1, 2), "pin_memory": (True, False)}
    plan = sweep_plan.SweepPlan(sweep_plan.combined(choices), tuple(choices), counters=None)
    sweep_plan.begin(path, ["python", "-c", "pass"], plan, 7)
    return json.loads((path / "sweep.json").read_bytes())


def tuned_file(path: Path) -> Any:
    settings_file.write(path, tuned().tuned(["python", "train.py"]))
    return json.loads(path.read_bytes())


def advised_file(path: Path) -> Any:
    """What `lotus advise` and `lotus plan` write."""
    kept = settings_file.SampleCache(("transform",), 1, ("Resize", "Flip"), None, 1 << 30)
    other = settings_file.AlternativeUse("uint8_tensors", False)
    entry = settings_file.Entry(
        settings_file.Target(number=0), Setting(2), cache=kept, alternatives=(other,)
    )
    settings_file.write(path, settings_file.found_for([entry], ["python", "train.py"]))
    return json.loads(path.read_bytes())


def problems(name: str, document: Any) -> list[str]:
    errors = Draft202012Validator(documents.schema(name)).iter_errors(document)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]


@pytest.mark.parametrize("name", documents.names())
def test_documents_are_as_their_schema_says(name: str, made: dict[str, list[Any]]) -> None:
    for document in made[name]:
        plain = json.loads(files.json_text(document))  # as commands print it
        assert problems(name, plain) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report", ("report", RUNS[0], "--json")),
        ("report", ("report", RUNS[-1], "--json", "--slowest", "2")),
        ("map", ("map", RUNS[-1], "--json")),
        ("compare", ("compare", RUNS[0], RUNS[1], "--json")),
        ("whatif", ("whatif", RUNS[-1], "--workers", "8", "--cores", "16", "--json")),
        ("whatif", ("whatif", RUNS[-1], "--latency", "20ms", "--bandwidth", "1GB/s", "--json")),
        ("top", ("top", "--json", RUNS[-1])),
    ],
)
def test_what_commands_print_of_a_real_run_is_as_its_schema_says(
    name: str, words: tuple[str | Path, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert problems(name, written(*words)(capsys)) == []


def test_a_real_sweep_is_as_its_schemas_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((TRACES / "sweep.json").read_bytes())
    assert problems("sweep", content) == []
    # Two of its runs are enough, and sooner read.
    of = [run for run in content["runs"] if run["repeat"] == 0 and run["setting"] in (0, 2)]
    for run in of:
        shutil.copytree(TRACES / run["directory"], tmp_path / run["directory"])
    (tmp_path / "sweep.json").write_text(json.dumps({**content, "runs": of}))
    document = written("report", tmp_path, "--json")(capsys)
    assert problems("report-sweep", document) == []
    assert len(document["runs"]) == 2


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a document; of lists their first element."""
    if isinstance(value, dict):
        yield value
        for item in list(value.values()):
            yield from objects(item)
    elif isinstance(value, list):
        for item in value[:1]:
            yield from objects(item)


@pytest.mark.parametrize("name", documents.names())
def test_a_wrong_document_fails(name: str, made: dict[str, list[Any]]) -> None:
    document = json.loads(json.dumps(made[name][0]))
    validator = Draft202012Validator(documents.schema(name))
    assert validator.is_valid(document)
    for place in list(objects(document)):
        # A name that no schema has; where names are free, a value that none may have.
        place["undocumented"] = [[0]]
        assert not validator.is_valid(document), sorted(place)
        del place["undocumented"]
    for field in documents.schema(name)["required"]:
        kept = document.pop(field)
        assert not validator.is_valid(document), field
        document[field] = kept
    assert validator.is_valid(document)


def test_numbers_that_are_none_fail(made: dict[str, list[Any]]) -> None:
    document = json.loads(json.dumps(made["report"][0]))
    document["loaders"][0]["times"]["loop_ns"] = "NaN"
    (problem,) = problems("report", document)
    assert problem.startswith("loaders/0/times/loop_ns: 'NaN'")


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a schema with its name."""
    if isinstance(schema, dict):
        for name, field in (schema.get("properties") or {}).items():
            yield f"{path}.{name}", field
        for key, value in schema.items():
            yield from fields(value, f"{path}.{key}" if key != "properties" else path)
    elif isinstance(schema, list):
        for value in schema:
            yield from fields(value, path)


@pytest.mark.parametrize("name", documents.names())
def test_every_field_has_a_description_and_says_its_unit(name: str) -> None:
    schema = documents.schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith(f"urn:lotus:{name}:")
    described = list(fields(schema))
    assert described
    for path, field in described:
        text = field.get("description", "")
        assert text.endswith("."), path
        for ending, unit in UNITS.items():
            if path.endswith(ending):
                assert unit in text.lower(), (path, text)


def test_every_verb_with_json_has_a_schema_and_says_so() -> None:
    titles = {documents.schema(name)["title"]: name for name in documents.names()}
    actions: Any = cli.parser()._subparsers
    verbs = actions._group_actions[0].choices
    for verb, parser in verbs.items():
        for action in parser._actions:
            if "--json" in action.option_strings:
                (name, *_) = (
                    titles[title] for title in titles if title.startswith(f"lotus {verb} ")
                )
                assert f"lotus schema {name}" in action.help, verb


def test_the_command_prints_schemas_and_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == documents.names()
    assert ["report", "lotus report RUN --json"] in [line.split(maxsplit=1) for line in lines]
    assert cli.main(["schema", "run.json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "run.json"


def test_a_schema_that_is_not_there_is_said_with_those_that_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["schema", "../run"]) == 2
    message = capfd.readouterr().err
    assert message.startswith(
        "lotus: there is no schema ../run; there are: advise, attach, attached, balance,"
    )
