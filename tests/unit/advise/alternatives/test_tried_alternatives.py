"""Alternatives: what a program says of them, what is read of that, and lotus's own ones."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from lotus.advise.alternatives import tried_alternatives
from lotus.advise.alternatives.tried_alternatives import FOLDER, Alternatives, TriedAlternative
from lotus.inside.common import alternative_files
from lotus.inside.isolate.alternative_bench import (
    AlternativeBench,
    Operation,
    difference,
    offers_of,
)
from lotus.inside.isolate.input_capture import Call, Catcher, fresh
from lotus.reporters.advise import alternatives_report
from lotus.reporters.base.console import plain_console
from lotus.reporters.base.status_line import StatusLine
from lotus.tune.search.trials.trial_rates import Speedup
from tests.fake_device import Event, FakeDevice

FILE = """
TITLE, CHANGE, KNOWN = "twice at once", "x * 4", "it is less work"

def offers(operations):
    first, second = operations
    yield ("Double", "Redouble"), lambda x: second.run(first.run(x)), lambda x: x * 4, first.inputs
    yield ("Double",), first.run, lambda x: (x * 2).double(), first.inputs
    yield ("Double",), first.run, lambda x: x[:1], first.inputs
    yield ("Redouble",), second.run, second.run, []
"""


def change(equal: bool | None = True, largest: float | None = 0.0) -> dict[str, object]:
    return {
        "before": "Tensor float32", "after": "Tensor float32", "equal": equal,
        "largest": largest, "mean": largest, "range": None if largest is None else 4.0,
        "square": largest if largest is None else largest / 4, "bytes": [8192, 2048],
    }  # fmt: skip


def tried(
    times: float, name: str = "other", replaces: tuple[str, ...] = ("Decode",), **output: Any
) -> dict[str, Any]:
    return {
        "event": "alternative", "name": name, "title": f"do {name}", "replaces": list(replaces),
        "samples": 4, "change": "code", "known": "a fact",
        "rounds": [[8e6 * drift, 8e6 * drift / times] for drift in (1.0, 1.3, 0.9, 1.0)],
        "changes": [change(), change(**output)], "peaks": [49152, 24576],
    }  # fmt: skip


def operation(
    name: str, cpu_ns: float, place: str | None = None, decoder: str | None = None
) -> dict[str, Any]:
    return {
        "event": "operation", "operation": name, "cpu_ns": cpu_ns, "place": place,
        "decoder": decoder,
    }  # fmt: skip


def several() -> Alternatives:
    events = [
        operation("Decode", 3e6, "data.py:12"),
        operation("Flip", 1e6),
        tried(0.5, "slow"),
        tried(2.0, equal=False, largest=0.25),
        tried(1.1, "small", equal=None, largest=None),
        {"event": "untried", "name": "far", "title": "go far", "why": "no captured input fits"},
        {"event": "fault", "error": "it ended"},
    ]
    return tried_alternatives.read(events, ["a note"])


def test_ratios_have_intervals_and_the_most_saving_one_is_first() -> None:
    result = several()
    assert [each.name for each in result.tried] == ["other", "small", "slow"]
    first = result.tried[0]
    assert first.speedup.mean == pytest.approx(2.0)
    assert first.speedup.low <= 2.0 <= first.speedup.high
    assert first.before_s == pytest.approx(2 * first.after_s)
    assert (first.faster, result.tried[2].faster) == (True, False)
    assert first.places == ("data.py:12",)
    assert result.notes == ("a note", "it ended")
    assert result.untried == (("go far", "no captured input fits"),)


def test_the_largest_difference_of_all_inputs_counts() -> None:
    output = several().tried[0].output
    assert (output.equal, output.largest, output.mean) == (False, 0.25, 0.125)
    assert several().tried[1].output.equal is None


def test_what_the_cores_would_make_is_predicted_from_the_share_of_what_is_replaced() -> None:
    result = several()
    assert result.sample_s == pytest.approx(0.004)
    assert result.predicted(result.tried[0]) == pytest.approx(4 / 2.5)
    ends = result.predicted_range(result.tried[0])
    assert ends is not None
    assert ends[0] <= 4 / 2.5 <= ends[1]
    unknown = tried_alternatives.read([operation("Flip", 1e6), tried(2.0)])
    assert unknown.predicted(unknown.tried[0]) is None
    assert unknown.predicted_range(unknown.tried[0]) is None


@pytest.mark.parametrize(
    ("decoder", "shown"),
    [("pil_loader", "decode (pil_loader)"), (None, "the data set's own code")],
)
def test_what_reads_a_sample_is_named_as_in_a_report(decoder: str | None, shown: str) -> None:
    events = [
        operation("Loader", 3e6, decoder=decoder),
        tried(2.0, replaces=("Loader", "Resize", "Flip")),
        tried(0.5, "slow", replaces=("Loader",)),
        {"event": "untried", "name": "Loader", "title": "Loader", "why": "it opens a socket"},
    ]
    text = io.StringIO()
    result = tried_alternatives.read(events)
    alternatives_report.write(plain_console(text, 300), result, ceiling=None)
    lines = " ".join(text.getvalue().split())
    assert "Loader" not in lines
    assert f"in place of {shown}, Resize and Flip:" in lines
    assert f"times as fast in place of {shown} not tried" in lines
    assert f"not tried {shown}: it opens a socket" in lines
    assert "Loader" in alternatives_report.document(result)["operations"]


def test_the_bar_names_what_reads_a_sample_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(StatusLine, "show", lambda line, text: shown.append(text))
    bar = alternatives_report.TrialProgress(terminal=True)
    for title in ("Loader", "Resize"):
        bar({"event": "trying", "title": title, "number": 1, "steps": 2})
    assert [text.partition("] ")[2] for text in shown] == ["the data set's own code", "Resize"]


def test_the_report_is_in_the_order_measured_predicted_known() -> None:
    text = io.StringIO()
    alternatives_report.write(
        plain_console(text, 300), several(), ceiling=Speedup(1.4, 1.3, 1.5, 4)
    )
    shown = " ".join(text.getvalue().split())
    places = [shown.index(f" {word} ") for word in ("measured", "output", "predicted", "known")]
    assert places == sorted(places)
    assert "the loop gains at most its ceiling, 1.40 (1.30 to 1.50) times" in shown
    assert "values differ by at most 0.25, 0.125 in the mean, of a range of 4" in shown
    assert "it has another shape" in shown
    assert "at data.py:12" in shown
    assert "not faster do slow: 0.50 " in shown
    assert "not tried go far: no captured input fits" in shown
    assert "PSNR 27.1 dB" in shown  # a range of 4, a mean square of 1/32
    assert "4.00 KiB become 1.00 KiB" in shown
    assert "memory at most 24.0 KiB a sample become 12.0 KiB" in shown


def test_operations_for_which_nothing_was_tried_are_told_with_their_part() -> None:
    events = [
        *(operation(name, ns) for name, ns in (("Resize", 5e6), ("Noise", 2e6), ("Mix", 1e6))),
        *(operation(name, ns) for name, ns in (("Mix/Blur", 1e6), ("collate", 2e6))),
        tried(2.0, replaces=("Resize",)),
        {"event": "skipped", "operation": "Upload", "why": "it uses the network"},
    ]
    result = tried_alternatives.read(events)
    assert result.without_alternative() == (["Noise", "Mix"], pytest.approx(0.3))
    text = io.StringIO()
    alternatives_report.write(plain_console(text, 300), result, ceiling=None)
    shown = " ".join(text.getvalue().split())
    assert "not tried Upload: it uses the network" in shown
    assert "none no other way was tried for Noise and Mix: 30% of the CPU time of a sample" in shown


def test_a_pipeline_without_alternatives_says_so() -> None:
    text = io.StringIO()
    alternatives_report.write(plain_console(text, 80), tried_alternatives.read([]), ceiling=None)
    assert "no alternative is known" in text.getvalue()


def bench(folder: Path, catcher: Catcher) -> list[Mapping[str, Any]]:
    events: list[Mapping[str, Any]] = []
    threads = torch.get_num_threads()
    try:
        AlternativeBench(str(folder), 1, events.append).try_all(catcher)
    finally:
        torch.set_num_threads(threads)
    return json.loads(json.dumps(events))  # type: ignore[no-any-return]


@pytest.fixture
def doubles() -> Catcher:
    catcher = Catcher(2, lambda event: None)
    for name in ("Redouble", "Double"):  # a sample calls them the other way round
        catcher.define(name)
        inputs = [torch.arange(4.0), torch.ones(4)]
        catcher.calls[name] = [Call(lambda x: x * 2, ((value,), {})) for value in inputs]
    catcher._called_now = ["Double", "Redouble"]
    return catcher


def test_a_file_of_another_folder_may_use_what_ours_share(tmp_path: Path, doubles: Catcher) -> None:
    (tmp_path / "_own.py").write_text("raise ValueError('this is not an alternative')")
    (tmp_path / "twice.py").write_text(f"from ._operations import is_of\n{FILE}")
    assert [event for event in bench(tmp_path, doubles) if event["event"] == "alternative"]


def test_alternatives_are_tried_on_copies_of_the_inputs(tmp_path: Path, doubles: Catcher) -> None:
    (tmp_path / "twice.py").write_text(FILE)
    events = bench(tmp_path, doubles)
    result = tried_alternatives.read(events)
    assert result.operations.keys() == {"Double", "Redouble"}
    assert result.places["Double"].startswith("test_tried_alternatives.py:")
    by_kind = {(each.replaces, each.output.after): each for each in result.tried}
    both = (("Double", "Redouble"), "Tensor float32")
    assert by_kind[both].output.equal
    assert by_kind[both].samples == 2
    assert by_kind[("Double",), "Tensor float64"].output.equal is False
    assert by_kind[("Double",), "Tensor float64"].output.largest == 0
    assert by_kind[("Double",), "Tensor float32"].output.equal is None
    assert result.untried == (("twice at once", "no captured input fits"),)
    assert doubles.calls["Double"][0].arguments[0][0].tolist() == [0, 1, 2, 3]
    assert by_kind[both].places[0].startswith("test_tried_alternatives.py:")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_library_at_all", "no_such_library_at_all is not installed"),
        ("TITLE = CHANGE = KNOWN = 'it'\ndef offers(x): raise ValueError('no')", "it raised Value"),
    ],
)
def test_one_that_fails_leaves_the_others_alone(
    tmp_path: Path, doubles: Catcher, text: str, why: str
) -> None:
    (tmp_path / "first.py").write_text(text)
    (tmp_path / "twice.py").write_text(FILE)
    result = tried_alternatives.read(bench(tmp_path, doubles))
    assert result.untried[0][1].startswith(why)
    assert len(result.tried) == 3


def test_results_are_compared_by_their_values() -> None:
    one = torch.tensor([1.0, 3.0])
    assert difference(one, one.clone())["equal"] is True
    apart = difference(one, torch.tensor([1.0, 3.5]))
    assert (apart["equal"], apart["largest"], apart["mean"], apart["range"]) == (
        False, 0.5, 0.25, 2.0,
    )  # fmt: skip
    assert difference(one, "text") == {
        "before": "Tensor float32", "after": "str", "bytes": [8, None], "square": None,
        "equal": None, "largest": None, "mean": None, "range": None,
    }  # fmt: skip


@pytest.fixture
def pipeline(tmp_path: Path) -> list[Operation]:
    """Resize, ToTensor and Normalize behind a decoder of three JPEG files of 400 x 320."""
    image = pytest.importorskip("PIL.Image")
    transforms = pytest.importorskip("torchvision.transforms")
    folder = pytest.importorskip("torchvision.datasets.folder")
    numpy = pytest.importorskip("numpy")
    chance, paths = numpy.random.default_rng(1), []
    for number in range(3):
        small = chance.integers(0, 256, (10, 8, 3), dtype="uint8")
        picture = image.fromarray(small).resize((400, 320), image.Resampling.BILINEAR)
        paths.append(str(tmp_path / f"{number}.jpg"))
        picture.save(paths[-1], quality=95)
    steps = [
        ("Loader", folder.default_loader),
        ("Resize", transforms.Resize((64, 64))),
        ("ToTensor", transforms.ToTensor()),
        ("Normalize", transforms.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])),
    ]
    operations, values = [], paths
    for name, step in steps:
        function = step if name == "Loader" else step.__call__
        operations.append(Operation(name, [Call(function, ((value,), {})) for value in values]))
        values = [step(value) for value in values]
    return operations


def cropped_late(pipeline: list[Operation]) -> list[Operation]:
    """ToTensor, RandomCrop and Normalize of the pictures."""
    transforms = pytest.importorskip("torchvision.transforms")
    to_tensor, normalize = pipeline[2:]
    crop = transforms.RandomCrop((20, 40))
    values = [to_tensor.run(value) for value in to_tensor.inputs]
    calls = [Call(crop.__call__, ((value,), {})) for value in values]
    return [to_tensor, Operation("RandomCrop", calls), normalize]


def coloured(pipeline: list[Operation]) -> list[Operation]:
    """ColorJitter and Resize of the pictures."""
    transforms = pytest.importorskip("torchvision.transforms")
    resize = pipeline[1]
    jitter = transforms.ColorJitter(0.3, 0.0, 0.3, 0.1)
    calls = [Call(jitter.__call__, ((value,), {})) for value in resize.inputs]
    return [Operation("ColorJitter", calls), resize]


def sounds(folder: Path) -> Operation:
    """A reader of sound files as torchaudio.load."""
    soundfile = pytest.importorskip("soundfile")
    path = str(folder / "a.wav")
    soundfile.write(path, [[0.1, -0.2], [0.3, 0.4]] * 50, 8000)

    def load(path: str) -> tuple[torch.Tensor, int]:
        samples, rate = soundfile.read(path)
        return torch.tensor(samples.T, dtype=torch.float32), rate

    return Operation("Loader", [Call(load, ((path,), {}))])


@pytest.mark.parametrize(
    ("name", "replaces", "largest"),
    [
        ("batched_normalize", ("Normalize",), 0.0),
        ("draft_decode", ("Loader", "Resize"), 40.0),  # of 255: another way to shrink
        ("early_crop", ("ToTensor", "RandomCrop", "Normalize"), 0.0),
        ("in_place_normalize", ("ToTensor", "Normalize"), 0.0),
        ("late_colour", ("ColorJitter", "Resize"), 12.0),
        ("late_float", ("ToTensor", "Normalize"), 0.0),
        ("opencv_decode", ("Loader",), 8.0),
        ("reducing_resize", ("Resize",), 12.0),
        ("simplejpeg_decode", ("Loader",), 8.0),
        ("soundfile_read", ("Loader",), 1e-4),
        ("torchvision_decode", ("Loader",), 8.0),  # libjpegs round differently
        ("uint8_resize", ("Resize",), 3.0),
        ("uint8_tensors", ("Loader", "Resize", "ToTensor", "Normalize"), 0.1),  # 4 of 255
    ],
)
def test_each_of_lotus_does_about_the_same(
    pipeline: list[Operation], name: str, replaces: tuple[str, ...], largest: float, tmp_path: Path
) -> None:
    for library in {"opencv_decode": ["cv2"], "simplejpeg_decode": ["simplejpeg"]}.get(name, []):
        pytest.importorskip(library)
    module = alternative_files.load(name)
    if name == "early_crop":
        pipeline = cropped_late(pipeline)
    if name == "late_colour":
        pipeline = coloured(pipeline)
    if name == "soundfile_read":
        pipeline = [sounds(tmp_path)]
    for text in (module.TITLE, module.CHANGE, module.KNOWN):
        assert text.strip() == text != ""
    ((replaced, before, after, inputs),) = offers_of(module, pipeline)
    assert replaced == replaces
    assert inputs
    for value in inputs:
        torch.manual_seed(3)
        whole = before(fresh(value))
        torch.manual_seed(3)
        shown = difference(whole, after(fresh(value)))
        assert shown["largest"] is not None, shown
        assert shown["largest"] <= largest, shown
    assert list(offers_of(module, [])) == []


def test_floats_of_tensors_are_made_late_too() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    pictures = [torch.randint(0, 256, (3, 9, 7), dtype=torch.uint8) for _ in range(3)]
    made = v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4] * 3, [0.2] * 3)
    operations = [
        Operation(type(step).__name__, [Call(step.__call__, ((each,), {})) for each in pictures])
        for step in made
    ]
    module = alternative_files.load("late_float")
    ((replaced, before, after, (inputs,)),) = offers_of(module, operations)
    assert replaced == ("ToDtype", "Normalize")
    assert difference(before(inputs), after(inputs))["equal"]
    assert ["remove", "ToDtype"] in module.edits(operations)


class Device(FakeDevice):
    """Computes on the CPU's tensors, and is busy for a while after each that it gets."""

    def __init__(self, busy_ms: float) -> None:
        super().__init__()
        self.busy_ms, self.asked = busy_ms, 0
        self.contexts.add(torch.device("cpu"))

    def current_device(self) -> torch.device:
        self.asked += 1
        self.launch(self.busy_ms)
        return torch.device("cpu")

    def Event(self) -> Event:
        return super().Event(enable_timing=True)


def on_a_device(
    monkeypatch: pytest.MonkeyPatch, pipeline: list[Operation], device: FakeDevice
) -> list[Any]:
    """What is offered for flips, ToTensor and Normalize of pictures of one size."""
    transforms = pytest.importorskip("torchvision.transforms")
    to_tensor, normalize = pipeline[2:]
    flips = [transforms.RandomHorizontalFlip(0.5), transforms.RandomVerticalFlip(0.3)]
    steps = [
        Operation(type(flip).__name__, [Call(flip.__call__, ((each,), {})) for each in pictures])
        for flip in flips
        for pictures in [to_tensor.inputs]
    ]
    for name in ("is_initialized", "current_device", "current_stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, getattr(device, name))
    return list(offers_of(alternative_files.load("device_floats"), [*steps, to_tensor, normalize]))


def test_flips_and_normalize_move_to_a_device_with_the_same_draws(
    pipeline: list[Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a device that the program uses THEN the batch that it makes is that of the operations,
    flipped by the same draws, and its time counts until the device has done its work."""
    device = Device(busy_ms=5)
    ((names, before, after, (inputs,)),) = on_a_device(monkeypatch, pipeline, device)
    assert names == ("RandomHorizontalFlip", "RandomVerticalFlip", "ToTensor", "Normalize")
    for seed in range(4):
        torch.manual_seed(seed)
        whole = before(fresh(inputs))
        torch.manual_seed(seed)
        start = time.monotonic_ns()
        shown = difference(whole, after(fresh(inputs)))
        assert shown["largest"] == pytest.approx(0, abs=1e-6)
        assert device.free <= time.monotonic_ns()
        assert time.monotonic_ns() - start >= 5e6  # as long as the device was busy


def test_without_a_device_in_use_none_is_tried_or_initialised(
    pipeline: list[Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(busy_ms=0)
    device.initialized = False
    assert on_a_device(monkeypatch, pipeline, device) == []
    assert (device.asked, device.made, device.initialized) == (0, 0, False)


def test_a_device_that_fails_is_said_and_ends_nothing(
    pipeline: list[Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(busy_ms=0)
    device.failing = "record"
    offers = on_a_device(monkeypatch, pipeline, device)
    assert offers
    events: list[Mapping[str, Any]] = []
    bench = AlternativeBench(str(FOLDER), 1, events.append, ["device_floats"])
    bench._try_file("device_floats", pipeline)
    (event,) = events
    assert event["event"] == "untried"
    assert "device lost in record" in event["why"]


def test_the_table_of_tests_has_every_file() -> None:
    assert {*alternative_files.names()} == {
        "batched_normalize", "device_floats", "draft_decode", "early_crop", "in_place_normalize",
        "late_colour", "late_float", "opencv_decode", "reducing_resize", "simplejpeg_decode",
        "soundfile_read", "torchvision_decode", "uint8_resize", "uint8_tensors",
    }  # fmt: skip


def test_one_tried_alternative_knows_whether_it_is_faster() -> None:
    output = several().tried[0].output
    facts: dict[str, Any] = {
        "name": "x", "title": "x", "replaces": ("A",), "places": (), "before_s": 1.0,
        "after_s": 0.9, "samples": 1, "output": output, "change": "", "known": "",
    }  # fmt: skip
    assert TriedAlternative(speedup=Speedup(1.1, 1.05, 1.2, 4), **facts).faster
    assert not TriedAlternative(speedup=Speedup(1.1, 0.95, 1.2, 4), **facts).faster
    assert not TriedAlternative(speedup=Speedup(1.01, 1.005, 1.02, 4), **facts).faster
