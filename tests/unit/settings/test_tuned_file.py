"""tuned.json: written, read strictly, compared with what is here, said in words."""

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus import cli
from lotus.common.errors import LotusError
from lotus.settings import settings_run, tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, SampleCache, Target, Tuned

TRAIN = Entry(
    Target(0, "train.py:12", "ImageFolder", 1000, "RandomSampler"),
    Setting(8, 4, True, True),
    Setting(0),
)
VAL = Entry(Target(1, dataset="Stream"), Setting(1), None, iterable_safe=True)
CACHE: dict[str, Any] = {
    "path": ["dataset", "transform"],
    "cut": 2,
    "operations": ["Resize", "CenterCrop", "RandomHorizontalFlip"],
    "folder": None,
    "budget_bytes": 20_000_000_000,
    "least_ns_per_byte": 0.5,
}


def document(**changes: Any) -> dict[str, Any]:
    """A good one, with fields replaced; those that are ... are left out."""
    entry = {"loader": {"dataset": "X"}, "setting": {"num_workers": 2}}
    content = {"schema": 1, "loaders": [entry], **changes}
    return {key: value for key, value in content.items() if value is not ...}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    tuned = tuned_file.found_for(
        [TRAIN, VAL], ["python", "train.py", "--token", "hunter2"], torch="2.14.1"
    )
    tuned_file.write(tmp_path / "tuned.json", tuned)
    assert tuned_file.read(tmp_path / "tuned.json") == tuned
    assert tuned.host
    assert (tuned.cores or 0) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["tuned.json"]
    assert "hunter2" not in (tmp_path / "tuned.json").read_text()


def with_cache(**changes: Any) -> dict[str, Any]:
    """A document whose loader has `CACHE`, with fields replaced; ... leaves one out."""
    cache = {key: value for key, value in {**CACHE, **changes}.items() if value is not ...}
    return document(
        loaders=[{"loader": {"dataset": "X"}, "setting": {"num_workers": 2}, "cache": cache}]
    )


def test_a_cache_of_samples_is_written_read_and_requested(tmp_path: Path) -> None:
    whole = SampleCache(None, 0, (), "/dev/shm/lotus", 5)
    part = SampleCache(("transform",), 1, ("Resize", "ToTensor"), None, 5, 0.25)
    tuned = Tuned(tuple(Entry(TRAIN.loader, Setting(2), cache=each) for each in (whole, part)))
    path = tmp_path / "plan.json"
    tuned_file.write(path, tuned)
    assert tuned_file.read(path) == tuned
    asked = json.loads(settings_run.request(tuned, None))["loaders"]
    assert asked[1]["cache"] == {
        "path": ["transform"],
        "cut": 1,
        "operations": ["Resize", "ToTensor"],
        "folder": None,
        "budget_bytes": 5,
        "least_ns_per_byte": 0.25,
        "compression": None,
    }
    path.write_text(json.dumps(with_cache(least_ns_per_byte=...)))
    cache = tuned_file.read(path).loaders[0].cache
    assert cache is not None
    assert (cache.path, cache.cut, cache.least_ns_per_byte) == (("dataset", "transform"), 2, 0.0)


def test_cached_samples_have_no_change_of_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    entry = Entry(TRAIN.loader, Setting(2), cache=SampleCache(None, 0, (), None, 5))
    tuned_file.write(path, Tuned((entry,)))
    assert cli.main(["run", "--print", "--settings", str(path)]) == 0
    assert capsys.readouterr().out == (
        "DataLoader(..., num_workers=2, prefetch_factor=2)\n"
        "# samples are cached by lotus run only, without a change of code\n"
    )


USES = [{"name": "quick", "exact": True}, {"name": "near_2", "exact": False}]


def with_alternatives(uses: object) -> dict[str, Any]:
    return document(
        loaders=[{"loader": {"dataset": "X"}, "setting": {"num_workers": 2}, "alternatives": uses}]
    )


def test_alternatives_that_change_values_are_requested_where_allowed(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    path.write_text(json.dumps(with_alternatives(USES)))
    tuned = tuned_file.read(path)
    tuned_file.write(path, tuned)
    assert json.loads(path.read_text())["loaders"][0]["alternatives"] == USES
    assert tuned_file.read(path).loaders == tuned.loaders
    asked = [
        json.loads(settings_run.request(tuned, None, allowed=allowed))["loaders"][0]
        for allowed in ((), ("near_2",))
    ]
    assert [entry["alternatives"] for entry in asked] == [["quick"], ["near_2", "quick"]]
    other = Tuned((dataclasses.replace(tuned.loaders[0], alternatives=()),))
    assert "alternatives" not in settings_run.request(other, None)


def test_a_file_without_a_cache_is_as_before(tmp_path: Path) -> None:
    tuned_file.write(tmp_path / "tuned.json", Tuned((TRAIN,)))
    (entry,) = json.loads((tmp_path / "tuned.json").read_text())["loaders"]
    assert "cache" not in entry
    assert tuned_file.read(tmp_path / "tuned.json").loaders[0].cache is None
    assert "cache" not in json.loads(settings_run.request(Tuned((TRAIN,)), None))["loaders"][0]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"  # as /dev/null, which a test must not risk
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    tuned_file.write(path, Tuned((TRAIN,)))
    assert path.is_fifo()
    assert json.loads(os.read(reader, 1 << 16))["loaders"]
    os.close(reader)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not JSON"),
        (b"\xff{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        ([], "the document must be an object, not a list"),
        ({"loaders": []}, "the document has no schema"),
        (document(schema="1"), "schema must be a whole number, not a text"),
        (document(schema=2), "its schema is 2, this lotus reads 1"),
        (document(loaders=...), "the document has no loaders"),
        (document(loaders=[]), "loaders has 0 items: it must have at least 1"),
        (document(loaders=[5]), "loaders[0] must be an object, not a whole number"),
        (
            document(batch_size=5),
            "the document has unknown fields: batch_size; it may have loaders,",
        ),
        (document(command="x"), "command must be a list, not a text"),
        (document(command=["x", 5]), "command[1] must be a text, not a whole number"),
        (document(cores=10**400), "in cores, number out of range"),
        (document(cores="x"), "cores must be a number or null, not a text"),
        (document(cwd=5), "cwd must be a text or null, not a whole number"),
        (document(host=True), "host must be a text or null, not true or false"),
        (document(evidence=[]), "evidence must be an object, not a list"),
        (document(loaders=[{"setting": {"num_workers": 1}}]), "loaders[0] has no loader"),
        (document(loaders=[{"loader": {}, "setting": {}}]), "nothing says which loader it is"),
        (
            document(loaders=[{"loader": {"line": 5}, "setting": {}}]),
            "nothing says which loader it is",
        ),
        (document(loaders=[{"loader": {"number": -1}}]), "number is -1"),
        (
            document(loaders=[{"loader": {"number": True}}]),
            "loaders[0].loader.number must be a whole number or null, not true or false",
        ),
        (
            document(loaders=[{"loader": {"dataset": 5}}]),
            "loaders[0].loader.dataset must be a text or null",
        ),
        (document(loaders=[{"loader": {"number": 0}}]), "loaders[0] has no setting"),
        (
            document(loaders=[{"loader": {"number": 0}, "setting": {"num_workers": -1}}]),
            "num_workers is -1",
        ),
        (
            document(
                loaders=[{"loader": {"number": 0}, "setting": {"num_workers": 1, "batch_size": 4}}]
            ),
            "loaders[0].setting has unknown fields: batch_size; it may have num_workers,",
        ),
        (
            document(
                loaders=[
                    {"loader": {"number": 0}, "setting": {"num_workers": 1}, "iterable_safe": 1}
                ]
            ),
            "loaders[0].iterable_safe must be true or false, not a whole number",
        ),
        (with_alternatives({}), "loaders[0].alternatives must be a list, not an object"),
        (with_alternatives([{"name": "quick"}]), "loaders[0].alternatives[0] has no exact"),
        (
            with_alternatives([{"name": "../x", "exact": True}]),
            "in loaders[0].alternatives[0], name is '../x': it must be one that lotus advise names",
        ),
        (
            with_alternatives([{"name": "x", "exact": 1}]),
            "loaders[0].alternatives[0].exact must be true or false",
        ),
        (with_cache(path="transform"), "loaders[0].cache.path must be a list or null, not a text"),
        (with_cache(path=[]), "path has 0 items: it must have 1 to 1000"),
        (with_cache(path=[""]), "path[0] has 0 characters: it must have 1 to 1000"),
        (with_cache(path=None), "operations need a path"),
        (with_cache(cut=4), "cut is 4: it must be a whole number from 0 to the number"),
        (with_cache(cut=-1), "cut is -1"),
        (with_cache(cut=True), "loaders[0].cache.cut must be a whole number"),
        (with_cache(operations=[1, 2]), "loaders[0].cache.operations[0] must be a text"),
        (with_cache(operations=None), "loaders[0].cache.operations must be a list, not null"),
        (with_cache(folder="samples"), "folder is 'samples': it must be an absolute path"),
        (with_cache(folder=5), "loaders[0].cache.folder must be a text or null"),
        (with_cache(budget_bytes=0), "budget_bytes is 0: it must be a whole number from 1 on"),
        (
            with_cache(budget_bytes=1.5),
            "loaders[0].cache.budget_bytes must be a whole number, not a decimal one",
        ),
        (with_cache(budget_bytes=..., cut=...), "loaders[0].cache has no cut"),
        (with_cache(least_ns_per_byte=-1), "least_ns_per_byte is -1"),
        (
            with_cache(least_ns_per_byte="0"),
            "loaders[0].cache.least_ns_per_byte must be a number, not a text",
        ),
        (with_cache(compression="rar"), "compression is 'rar': it must be one of zlib, zstd, png"),
        (with_cache(size=5), "loaders[0].cache has unknown fields: size"),
        (
            document(
                loaders=[{"loader": {"number": 0}, "setting": {"num_workers": 1}, "cache": 5}]
            ),
            "loaders[0].cache must be an object or null",
        ),
    ],
)
def test_what_is_wrong_is_one_line(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(LotusError) as caught:
        tuned_file.read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path} is not a file of settings: ")
    assert str(caught.value).endswith("lotus tune -o tuned.json -- COMMAND")
    assert "\n" not in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(
    "schema loaders command host cores torch evidence loader setting before iterable_safe number "
    "call_site dataset dataset_length sampler num_workers prefetch_factor start_method cache path "
    "cut operations folder budget_bytes least_ns_per_byte".split()
)
_ALIKE = st.recursive(
    _JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=6),
    max_leaves=20,
)


@given(_ALIKE, st.sampled_from(["all", "loaders", "loader", "setting", "cache"]))
def test_any_json_is_read_or_refused(content: object, where: str) -> None:
    entry: dict[str, object] = {"loader": {"number": 0}, "setting": {"num_workers": 1}}
    if where in ("loader", "setting", "cache"):
        entry[where] = content
    loaders = content if where == "loaders" else [entry]
    made = content if where == "all" else {"schema": 1, "loaders": loaders}
    try:
        tuned = tuned_file._tuned(json.loads(json.dumps(made)))
    except ValueError:
        return
    assert json.loads(settings_run.request(tuned, None))["loaders"]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LotusError, match=r"cannot read .*tuned.json: No such file"):
        tuned_file.read(tmp_path / "tuned.json")
    with pytest.raises(LotusError, match=r"cannot write .*tuned.json: No such file"):
        tuned_file.write(tmp_path / "no" / "tuned.json", Tuned((TRAIN,)))


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        (
            Setting(8, 4, True),
            ["DataLoader(..., num_workers=8, prefetch_factor=4, pin_memory=True)"],
        ),
        (Setting(0, pin_memory=True), ["DataLoader(..., num_workers=0, pin_memory=True)"]),
        (
            Setting(2, None, False, True, "spawn", False, 3),
            [
                "DataLoader(..., num_workers=2, prefetch_factor=2, persistent_workers=True, "
                "multiprocessing_context='spawn', in_order=False)",
                "torch.set_num_threads(3)  # only there: in its worker_init_fn",
                "cv2.setNumThreads(3)  # there, too, where it uses OpenCV",
                "threadpoolctl.threadpool_limits(3)  # and for numpy's BLAS",
            ],
        ),
        (
            Setting(0, torch_threads=1),
            ["DataLoader(..., num_workers=0)", "torch.set_num_threads(1)  # before training"],
        ),
    ],
)
def test_the_change_of_code_is_what_a_user_would_write(setting: Setting, lines: list[str]) -> None:
    assert tuned_file.code_change(setting) == lines


def test_it_is_printed_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tuned_file.write(tmp_path / "tuned.json", Tuned((TRAIN, VAL)))
    expected = """\
# the loader of ImageFolder (1000 samples, RandomSampler) at train.py:12
DataLoader(..., num_workers=8, prefetch_factor=4, pin_memory=True, persistent_workers=True)
# the loader of Stream
DataLoader(..., num_workers=1, prefetch_factor=2)
"""
    assert cli.main(["run", "--print", "--", "touch", "made"]) == 0
    assert capsys.readouterr().out == expected
    assert cli.main(["run", "--settings", "tuned.json"]) == 0
    assert capsys.readouterr().out == expected
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("python train.py --epochs 1", "python3 train.py --epochs 90", True),
        ("python train.py", "torchrun --nproc-per-node 2 src/train.py", True),
        ("python -m pkg.train", "-m pkg.train --fast", True),
        ("python -m torch.distributed.run train.py", "python train.py", True),
        ("lotus trace -- python train.py", "python train.py", True),
        ("python train.py", "python eval.py", False),
        ("-m pkg.train", "-m pkg.eval", False),
        ("my-train", "/usr/bin/my-train", True),
        ("python train", "python3.11 -u train", True),
        ("python train", "python eval", False),
        ("python train.py", "bash -c 'exec python train.py --lr 3'", True),
        ("python train.py", "sh -c 'rmdir x; exec \"$@\"' - python train.py", True),
        ("python -c 'print(1)'", "python -c 'print(2)'", False),
        ("python src/train.py", "python src/../src/train.py", True),
        ("python train.py", "python /home/me/train.py", True),
    ],
)
def test_another_program_is_told(before: str, now: str, same: bool) -> None:
    tuned = Tuned((TRAIN,), tuple(shlex.split(before)))
    assert bool(tuned_file.other_program(tuned, shlex.split(now))) != same
    assert bool(tuned_file.differences(tuned, shlex.split(now))) != same


def test_a_script_of_that_name_elsewhere_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = tuned_file.found_for([TRAIN], ["python", "src/train.py"])
    assert here.cwd == str(tmp_path)
    other = tuned_file.found_for([TRAIN], ["python", "/a/train.py"])
    for tuned, now, programs in (
        (here, "src/train.py", []),
        (here, str(tmp_path / "src" / "train.py"), []),
        (here, "train.py", [f"{tmp_path}/src/train.py, but this command runs {tmp_path}/train.py"]),
        (other, "/b/train.py", ["/a/train.py, but this command runs /b/train.py"]),
        (Tuned((TRAIN,), ("python", "src/train.py")), "train.py", []),  # nobody knows
    ):
        assert tuned_file.other_program(tuned, ["python", now]) == ""
        notes = tuned_file.differences(tuned, ["python", now])
        assert notes == [f"the settings were found for {program}" for program in programs]


def test_settings_of_another_script_start_nothing_without_force(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.sh").write_text("echo ran; exit 7")
    tuned_file.write(tmp_path / "tuned.json", Tuned((TRAIN,), ("python", "train.py")))
    for quiet in ([], ["-q"]):
        assert cli.main(["run", *quiet, "--", "sh", "other.sh"]) == 2
        out, error = capfd.readouterr()
        assert out == ""
        assert error == (
            "lotus: the settings were found for train.py, but this command runs other.sh, so "
            "nothing was started; -f applies them all the same: lotus run -f -- sh other.sh; "
            "`lotus tune -- COMMAND` makes settings for another script\n"
        )
    assert cli.main(["run", "--", "lotus", "trace", "-o", "x", "--", "true"]) == 2
    assert "this command runs true, so nothing" in capfd.readouterr().err
    assert cli.main(["run", "-f", "--", "sh", "other.sh"]) == 7
    out, error = capfd.readouterr()
    assert out == "ran\n"
    assert "lotus: the settings were found for train.py, but this command runs other.sh\n" in error
    assert cli.main(["run", "--", "sh", "-c", "exit 5"]) == 2
    assert cli.main(["run", "--print"]) == 0


def test_another_machine_is_told_with_what_differs() -> None:
    here = tuned_file.machine()
    assert tuned_file.differences(Tuned((TRAIN,), **here), ["x"]) == []
    notes = tuned_file.differences(
        Tuned((TRAIN,), host="else\nwhere", cores=here["cores"] + 1), ["x"]
    )
    assert notes[0] == f"the settings were found on else?where, this is {here['host']}"
    assert notes[1].startswith(f"the settings were found with {here['cores'] + 1:g} core")
    assert len(notes) == 2


def test_what_met_no_loader_is_told_with_what_is_alike(tmp_path: Path) -> None:
    facts_file = tmp_path / "said"
    made = [
        "the loader of Other (5 samples, SequentialSampler) at a.py:1",
        "the loader of List (5 samples, SequentialSampler) at a.py:1",
        "the loader of ImageFolder (10 samples, RandomSampler) at train.py:14",
    ]
    facts: list[object] = [{"made": words} for words in made]
    facts_file.write_text(
        "\n".join(map(json.dumps, [*facts, {"refused": 1}, 5, {"note": "x"}])) + "\n{"
    )
    assert settings_run.not_found(Tuned((TRAIN, VAL)), settings_run.recorded_facts(facts_file)) == [
        "the loader of ImageFolder (1000 samples, RandomSampler) at train.py:12 was not found, so "
        "its setting was not applied; made were ImageFolder (10 samples, RandomSampler) at "
        "train.py:14, Other (5 samples, SequentialSampler) at a.py:1 and 1 more"
    ]


def test_the_exit_code_of_the_program_is_kept_and_a_wrong_command_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tuned_file.write(tmp_path / "tuned.json", Tuned((TRAIN,)))
    assert cli.main(["run", "--", "sh", "-c", "exit 7"]) == 7
    assert "was not found, so its setting was not applied" in capfd.readouterr().err
    assert cli.main(["run", "--", "no-such-command"]) == 127
    assert capfd.readouterr().err == (
        "lotus: no-such-command: command not found; the shell's aliases are not known here\n"
    )


@pytest.mark.parametrize("changed", [False, True])
def test_settings_that_change_nothing_are_said_to(
    changed: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    own = Setting(0) if changed else TRAIN.setting
    tuned_file.write(tmp_path / "tuned.json", Tuned((dataclasses.replace(TRAIN, before=own),)))
    assert cli.main(["run", "--", "sh", "-c", "exit 0"]) == 0
    said = "lotus: tuned.json: the program's own settings, so it runs as it is"
    assert (said in capfd.readouterr().err) is not changed


@pytest.mark.parametrize(
    ("found_for", "run_as", "same"),
    [
        ("python tool -m resnet", "python tool -m vgg", True),
        ("python tool -c a.yaml", "python tool -c b.yaml", True),
        ("python tool --cfg a.py", "python tool --cfg b.py", True),
        ("python -X dev tool", "python tool", True),
        ("python -W error -u tool", "python3.12 tool", True),
        ("python -X dev tool", "python -X dev tool_b", False),
        ("python -m pkg.train --lr 1", "python -m pkg.train --lr 2", True),
        ("python -m pkg.train", "python -m pkg.other", False),
        ("torchrun --nproc-per-node 2 train.py", "python train.py", True),
        ("python -m torch.distributed.run train.py", "torchrun -n 4 train.py", True),
        ("torchrun -n 2 -m pkg.train", "torchrun -n 2 -m pkg.other", False),
        ("env A=1 python train.py", "bash -c 'python train.py'", True),
        ("./tool -m resnet", "./tool -m vgg", True),
        ("python -c 'import a'", "python -c 'import b'", False),
    ],
)
def test_a_script_is_known_by_its_own_name_and_not_by_its_arguments(found_for, run_as, same):
    tuned = Tuned((TRAIN,), command=tuple(shlex.split(found_for)))
    assert (tuned_file.other_program(tuned, shlex.split(run_as)) == "") is same
