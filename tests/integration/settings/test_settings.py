"""`lotus run`: settings reach the loaders they are for, and nothing else of a program changes."""

import json
import re

import pytest

from lotus.settings import tuned_file as settings
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, Target, Tuned
from tests.integration.conftest import LOTUS, PROGRAMS, Ended, Start, command_of

SCRIPT = "settings_shapes.py"
SOURCE = (PROGRAMS / SCRIPT).read_text().splitlines()


def line(text, nth=0):
    """`file:line` of the nth line of the program that holds this text."""
    numbers = [number for number, content in enumerate(SOURCE, 1) if text in content]
    return f"{SCRIPT}:{numbers[nth]}"


def entry(dataset, workers, *more, length=None, site=None, sampler=None, safe=False, **names):
    target = Target(None, site, dataset, length, sampler)
    return Entry(target, Setting(workers, *more, **names), None, safe)


SHUFFLED = line("train = DataLoader")
GROWN_LINE = "loader = DataLoader(cls(24), batch_size=5, shuffle=True)"
GROWN, LENGTHS = line(GROWN_LINE), line("loaders = [DataLoader(cls(length)")
KEPT = {"prefetch_factor": 3, "persistent_workers": True}
# By shape: what is in tuned.json for it.
ENTRIES = {
    "shuffled": entry("Shuffled", 2, site=SHUFFLED, length=24, sampler="RandomSampler", **KEPT),
    "not_kept": entry("NotKept", 1, pin_memory=True),
    "alone": entry("Alone", 0),
    "eager": entry("Eager", 1, persistent_workers=True),
    "eager_workers": entry("EagerWorkers", 0),
    "positional": entry("Positional", 2, 5, start_method="fork", in_order=True),
    "subclass": entry("Subclass", 2, site=line("loader = Loader(")),
    "threads_forked": entry("ThreadsForked", 1, threads=1, start_method="fork"),
    "threads_many": entry("ThreadsMany", 1, threads=2, start_method="fork"),
    "threads_spawned": entry("ThreadsSpawned", 1, threads=2, start_method="spawn"),
    "stream": entry("Stream", 2, pin_memory=True),
    "sharded": entry("Sharded", 2, safe=True),
    "timed": entry("Timed", 0),
    "unpicklable": entry("Unpicklable", 2, start_method="spawn"),
    "unordered": entry("Unordered", 1, in_order=False),
    "remade": entry(
        "Remade", 2, site=line("loader = DataLoader(cls(), batch_size=5, shuffle=True)"), **KEPT
    ),
    "remade_saved": entry(
        "RemadeSaved", 1, site=line("shuffle=True), Data"), sampler="RandomSampler"
    ),
    "grown": entry("Grown", 2, site=GROWN, length=6, sampler="RandomSampler", **KEPT),
    "remade_grown": entry(
        "RemadeGrown", 2, site=line(GROWN_LINE, 1), length=6, sampler="RandomSampler", **KEPT
    ),
    "lengths_told": entry("LengthsTold", 2, site=LENGTHS, length=24, sampler="RandomSampler"),
    "lengths_untold": entry("LengthsUntold", 2, site=LENGTHS, length=7, sampler="RandomSampler"),
    "lengths_left": entry("LengthsLeft", 2, site=LENGTHS, length=6, sampler="RandomSampler"),
    "own_context": entry("OwnContext", 2, length=5),
    "nested": entry("Inner", 2),
}


class Both:
    """A program that ran plain and under `lotus run`, side by side."""

    def __init__(self, plain: Ended, run: Ended) -> None:
        self.plain, self.run = plain, run

    def part(self, ended, shape):
        parts = re.split(r"^== (\w+)\n", ended.out.decode(), flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))[shape]

    def truth(self, name):
        return json.loads(self.run.truth.read_text())[name]

    def notes(self, text):
        return [line for line in self.run.err.decode().splitlines() if text in line]


def settings_file(folder, entries, **facts):
    path = folder / "tuned.json"
    settings.write(path, Tuned(tuple(entries), **facts))
    return path


@pytest.fixture(scope="session")
def both(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    more = [
        entry("OwnContext", 0, length=6),
        entry("LengthsLeft", 1, site=LENGTHS, length=24, sampler="RandomSampler"),
        entry("Grown", 1, site="other.py:3", length=99, sampler="RandomSampler"),
        entry("Grown", 1, site=GROWN, length=99, sampler="SequentialSampler"),
        entry("Grown", 1, length=99, sampler="RandomSampler"),
        entry("Nowhere", 1, site="gone.py:3"),
    ]
    path = settings_file(folder, [*ENTRIES.values(), *more])
    command = command_of(SCRIPT, ENTRIES)
    plain = Start(command, folder, "plain", {})
    run = Start([*LOTUS, "run", "--settings", str(path), "--", *command], folder, "run", {})
    return Both(plain.end(), run.end())


def test_the_program_ends_as_without_lotus(both):
    assert (both.plain.code, both.plain.err) == (0, b"")
    assert both.run.code == 0, both.run.err.decode()
    lines = both.run.err.decode().splitlines()
    # torch's own words on what two of the settings ask of it.
    words = ("pin_memory", "super().__init__(loader)", "pickle", "_MultiProcessingDataLoaderIter(")
    rest = [line for line in lines if not any(word in line for word in words)]
    assert [line for line in rest if not line.startswith("lotus: ")] == []


@pytest.mark.parametrize("shape", ENTRIES)
def test_batches_and_random_state_are_the_same(both, shape):
    """Bit for bit, epoch by epoch, also of the loaders made afterwards from the same generator."""
    assert both.part(both.run, shape).splitlines() == both.part(both.plain, shape).splitlines()


def differs(**names):
    plain = {
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "start_method": None,
    }
    return {**plain, "pin_memory": False, "in_order": True, **names}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shuffled", {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}),
        ("held", {}),
        ("other", {"num_workers": 1, "prefetch_factor": 2}),
        ("not_kept", {"num_workers": 1, "prefetch_factor": 2, "pin_memory": True}),
        ("alone", {}),
        ("positional", {"num_workers": 2, "prefetch_factor": 5, "start_method": "fork"}),
        ("subclass", {"num_workers": 2, "prefetch_factor": 2}),
        ("threads_spawned", {"num_workers": 1, "prefetch_factor": 2, "start_method": "spawn"}),
        ("stream", {}),
        ("sharded", {"num_workers": 2, "prefetch_factor": 2}),
        ("timed", {"num_workers": 1, "prefetch_factor": 2}),
        ("unpicklable", {"num_workers": 1, "prefetch_factor": 2}),
        ("own_context", {"num_workers": 2, "prefetch_factor": 2, "start_method": "spawn"}),
        ("no_context", {}),
        ("remade", {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}),
        ("remade_saved", {"num_workers": 1, "prefetch_factor": 2}),
        ("remade_held", {}),
        ("grown", {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}),
        ("remade_grown", {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}),
        ("LengthsTold 24", {"num_workers": 2, "prefetch_factor": 2}),
        ("LengthsTold 6", {}),
        ("LengthsUntold 24", {}),
        ("LengthsUntold 6", {}),
        ("LengthsLeft 6", {"num_workers": 2, "prefetch_factor": 2}),
        ("LengthsLeft 7", {"num_workers": 1, "prefetch_factor": 2}),
    ],
)
def test_a_loader_shows_what_is_used(both, name, expected):
    truth = both.truth(name)
    assert {key: truth[key] for key in differs()} == differs(**expected)


def test_the_batch_size_is_the_programs(both):
    assert both.truth("shuffled")["batch_size"] == 5
    assert both.truth("positional")["batch_size"] == 4


def test_a_subclass_sees_what_is_used(both):
    assert both.truth("subclass")["seen"] == 2


def test_the_programs_worker_init_fn_does_not_undo_threads_that_a_setting_has(both):
    # It adds 10 to what it finds; torch itself sets 1.
    assert both.truth("threads_spawned")["threads"] == [2, 2]
    assert both.truth("threads_forked")["threads"] == [1, 1]


def test_threads_that_hang_in_forked_workers_are_refused(both):
    assert both.truth("threads_many")["threads"] == [11, -1]
    assert len(both.notes("the 2 threads a worker are not set")) == 1


@pytest.mark.parametrize("name", ["threads_spawned", "threads_forked", "threads_many"])
def test_what_else_the_program_passes_stays_its_own(both, name):
    assert both.truth(name)["same"]


def test_an_iterable_data_set_is_refused_by_name_and_only_unless_proven_safe(both):
    (note,) = both.notes("iterable, so 2 workers instead of 0")
    assert "Stream" in note
    assert not both.notes("Sharded (iterable) at")


def test_a_timeout_refuses_to_have_no_workers(both):
    (note,) = both.notes("a timeout (300 s) needs workers")
    assert "Timed (24 samples, SequentialSampler)" in note


def test_a_data_set_that_cannot_be_pickled_keeps_the_programs_start(both):
    (note,) = both.notes("cannot be started by spawn")
    assert "Unpicklable" in note


def test_batches_out_of_order_need_a_torch_that_can(both, torch):
    assert both.truth("unordered")["in_order"] == (torch < (2, 6))
    assert len(both.notes("in_order=False came with torch 2.6")) == (torch < (2, 6))


def test_a_change_of_workers_is_said_once_for_each_loader(both):
    (note,) = both.notes(f"num_workers goes from 0 to 2 at {SHUFFLED}")
    assert "random augmentations" in note
    assert len(both.notes(f"workers stay from epoch to epoch at {SHUFFLED}")) == 1


def test_another_length_of_the_data_set_is_a_note(both):
    (note,) = both.notes("the loader of Grown (24")
    assert note == (
        f"lotus: the loader of Grown (24 samples, RandomSampler) at {GROWN} gets the setting that "
        "was found on 6 samples"
    )
    assert len(both.notes("the loader of RemadeGrown")) == 1


def test_where_loaders_of_several_lengths_may_be_meant_the_length_decides(both):
    assert not both.notes("the loader of LengthsTold")
    notes = both.notes("LengthsUntold (24 samples, RandomSampler)")
    assert "loaders of 6 and 24 samples are made there, the settings were found on 7" in notes[0]
    assert "lotus tune -f -- COMMAND" in notes[0]
    (note,) = both.notes("the loader of LengthsLeft (7")
    assert note.endswith("gets the setting that was found on 24 samples")


def test_a_setting_without_its_loader_is_told_at_the_end(both):
    (note,) = both.notes("Nowhere at gone.py:3 was not found")
    assert note.endswith("more")
    # A loader inside a data set is made in a worker, which may start none itself.
    assert len(both.notes("was not found")) == 6
    assert both.notes("the loader of Inner was not found")


@pytest.fixture
def lotus_run(torch, tmp_path):
    """lotus_run(code, *entries, options=(), **facts): a program's text under `lotus run`."""

    def run(code, *entries, options=(), before=(), name="run", command=None, env=None, **facts):
        (tmp_path / "program.py").write_text(code)
        path = settings_file(tmp_path, entries, **facts)
        words = command or command_of(str(tmp_path / "program.py"), [])
        lotus = [*LOTUS, "run", "--settings", str(path), *options, "--", *before, *words]
        return Start(lotus, tmp_path, name, env or {}).end()

    return run


LOADERS = """
import sys
from torch.utils.data import DataLoader
a, b = (DataLoader(list(range(count)), 2) for count in (6, 4))
print([batch.tolist() for batch in b])
print([batch.tolist() for batch in a])
print(a.num_workers, b.num_workers)
"""


def test_a_number_counts_loaders_by_their_first_iteration(lotus_run, tmp_path):
    """And alone, `lotus run` records nothing."""
    ended = lotus_run(LOADERS, Entry(Target(number=0), Setting(1, persistent_workers=True)))
    assert ended.out.decode().splitlines()[-1] == "0 1"
    assert "was not found" not in ended.err.decode()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"program.py", "run.err", "run.out", "tuned.json"}


PLACES = """
import sys
from torch.utils.data import DataLoader
sys.path.insert(0, "my-packages")
import helper
a = DataLoader([1, 2], 2)
b = helper.build()
c = helper.build()
print([batch.tolist() for batch in a])
print([batch.tolist() for one in (b, c) for batch in one])
print(a.num_workers, b.num_workers, c.num_workers)
"""


def test_places_that_older_versions_wrote_still_name_their_loader(lotus_run, tmp_path):
    """That of the iteration, as in a report, and that of what calls a folder like "my-packages"."""
    (tmp_path / "my-packages").mkdir()
    (tmp_path / "my-packages" / "helper.py").write_text(
        "from torch.utils.data import DataLoader\ndef build():\n    return DataLoader([3], 2)\n"
    )
    last = {}
    for name, sites in {"old": ("program.py:9", "program.py:7"), "new": ("program.py:6",)}.items():
        entries = [Entry(Target(call_site=site, dataset="list"), Setting(1)) for site in sites]
        if name == "new":
            entries.append(Entry(Target(call_site="helper.py:3"), Setting(2)))
        ended = lotus_run(PLACES, *entries, name=name)
        last[name] = ended.out.decode().splitlines()[-1]
        assert "was not found" not in ended.err.decode()
    assert last == {"old": "1 1 0", "new": "1 2 2"}


FAILS = """
import sys
from torch.utils.data import DataLoader

class Data(list):
    pass

def init(worker):
    raise OSError("in init")

def main(what):
    if what == "made":
        DataLoader(Data([1]), num_workers=-1)
    loader = DataLoader(Data([1, 2]), worker_init_fn=init if what == "init" else None)
    if what == "sampler":
        loader.batch_sampler.sampler = 3
    for batch in loader:
        pass

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("what", ["made", "sampler", "init"])
def test_exceptions_are_the_programs(torch, tmp_path, what):
    """The traceback is that of a program with the setting in its code: no frame is of lotus."""
    # GIVEN a program that fails with the setting written into it, and without
    program = tmp_path / "program.py"
    written = tmp_path / "written" / "program.py"
    written.parent.mkdir()
    program.write_text(FAILS)
    written.write_text(FAILS.replace("[1, 2]), ", "[1, 2]), num_workers=1, "))
    workers = Entry(Target(dataset="Data", dataset_length=2), Setting(1, threads=1))
    path = settings_file(tmp_path, [workers])
    # WHEN they run plain and under `lotus run`
    words = command_of(str(program), [what])
    lotus = Start([*LOTUS, "run", "--settings", str(path), "--", *words], tmp_path, "run", {})
    plain = Start(command_of(str(written), [what]), tmp_path, "plain", {}).end()
    ended = lotus.end()
    # THEN they end alike
    assert ended.code == plain.code
    assert ended.code == 1
    errors = [line for line in ended.err.decode().splitlines() if not line.startswith("lotus: ")]
    assert (
        errors
        == plain.err.decode().replace("/written/", "/").replace("num_workers=1, ", "").splitlines()
    )


def test_recorded_and_with_settings_at_once(torch, tmp_path):
    """In either order; the recorded run shows what was used."""
    import lotus

    program = tmp_path / "program.py"
    program.write_text(LOADERS)
    path = settings_file(tmp_path, [Entry(Target(dataset_length=6, dataset="list"), Setting(2))])
    run = [*LOTUS, "run", "--settings", str(path), "--"]
    for number in range(2):
        trace = [*LOTUS, "trace", "-q", "-o", str(tmp_path / f"R{number}"), "--"]
        words = [*run, *trace] if number else [*trace, *run]
        ended = Start([*words, *command_of(str(program), [])], tmp_path, "both", {}).end()
        assert ended.code == 0, ended.err.decode()
        assert ended.out.decode().splitlines()[-1] == "2 0"
        loaders = lotus.load(tmp_path / f"R{number}").loaders
        assert list(loaders["num_workers"]) == [0, 2]


def test_every_rank_gets_the_setting_and_what_is_said_is_said_once(lotus_run):
    code = """
import subprocess, sys
from torch.utils.data import DataLoader
if sys.argv[1:]:
    loader = DataLoader(list(range(6)))
    print(loader.num_workers, flush=True)
else:
    for rank in [subprocess.Popen([sys.executable, __file__, "rank"]) for _ in range(2)]:
        rank.wait()
"""
    ended = lotus_run(code, Entry(Target(dataset="list"), Setting(1)), torch="0.9")
    assert ended.out == b"1\n1\n"
    messages = ended.err.decode().splitlines()
    assert len(messages) == 2
    assert sum("num_workers goes from 0 to 1" in line for line in messages) == 1
    assert sum("found with torch 0.9, this is " in line for line in messages) == 1


def test_a_program_that_makes_no_loader_is_told_so(lotus_run):
    ended = lotus_run("print(5)", Entry(Target(call_site="a.py:1", dataset="X"), Setting(1)))
    assert (ended.code, ended.out) == (0, b"5\n")
    assert ended.err.decode() == (
        "lotus: the loader of X at a.py:1 was not found, so its setting was not applied; "
        "no other was made\n"
    )


def test_the_environment_and_argument_list_are_the_programs(lotus_run):
    code = "import os, sys; print(sys.argv[1:], os.environ['TRUTH'])"
    ended = lotus_run(code, Entry(Target(dataset="X"), Setting(1)), env={"TRUTH": "t"})
    assert ended.out == b"[] t\n"


def test_more_workers_than_cores_are_no_warning_of_the_programs(lotus_run):
    """Which `-W error` would make an exception; where it asked for them itself, it is told."""
    code = """
import os, warnings
from torch.utils.data import DataLoader
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
warnings.simplefilter("error")
loader = DataLoader([0, 1])
print([batch.item() for batch in loader], loader.num_workers, "check" in str(vars(loader)))
try:
    DataLoader([0, 1], None, num_workers=2)
except UserWarning as warning:
    print(str(warning)[:39])
"""
    ended = lotus_run(code, Entry(Target(number=0), Setting(2)))
    assert ended.out == b"[0, 1] 2 False\nThis DataLoader will create 2 worker pr\n"
    assert ended.code == 0


TORCH_THREADS = """
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(2)
weight = torch.zeros(4, requires_grad=True)
loaders = [DataLoader(torch.arange(64.0).view(16, 4), batch_size=4) for _ in range(2)]
print("made", torch.get_num_threads())
for epoch in range(2):
    for number, loader in enumerate(loaders):
        for batch in loader:
            (batch * weight).sum().backward()
        print("epoch", epoch, number, torch.get_num_threads())
    if epoch == 0:
        torch.set_num_threads(2)
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_torch_gets_its_threads_when_the_loader_is_first_iterated(lotus_run, workers):
    """And once: where the program sets them again, or without the loader, its own count."""
    setting = Setting(workers, torch_threads=1)
    ended = lotus_run(TORCH_THREADS, Entry(Target(call_site="program.py:6"), setting))
    assert ended.code == 0, ended.err.decode()
    expected = ["made 2", "epoch 0 0 1", "epoch 0 1 1", "epoch 1 0 2", "epoch 1 1 2"]
    assert ended.out.decode().splitlines() == expected
    notes = [line for line in ended.err.decode().splitlines() if "torch gets" in line]
    assert notes == [
        "lotus: torch gets 1 thread in the training process when the loader at program.py:6 is "
        "first iterated: sums of floats may differ in their last bits"
    ]
