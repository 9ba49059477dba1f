"""A data set's transform with alternatives in it."""

import operator
import random

import pytest

from lotus.inside.apply import transform_change
from lotus.inside.apply.transform_change import ExactStep, TransformChange, TransformChangeError
from lotus.inside.cache.random_sources import NAMES, states
from lotus.inside.common import alternative_files
from lotus.inside.common.alternative_files import KnownOperation
from lotus.inside.trace.operation_stand_ins import is_stand_in, stand_in

np = pytest.importorskip("numpy")
transforms = pytest.importorskip("torchvision.transforms")
torch = pytest.importorskip("torch")
datasets = pytest.importorskip("torchvision.datasets")

FLOATS = [transforms.ToTensor(), transforms.Normalize([0.5], [0.2])]


class Data:
    def __init__(self, steps):
        self.transform = transforms.Compose(steps)
        self.again = self.transform


def change(data, *names):
    notes = []
    return TransformChange(data, names, notes.append), notes


def test_a_transform_is_changed_only_between_put_and_restore():
    data = Data([transforms.Resize(8), *FLOATS])
    own, steps = data.transform, data.transform.transforms
    changed, _ = change(data, "in_place_normalize")
    assert (data.transform, data.transform.transforms) == (own, steps)
    changed.put()
    assert data.transform is data.again is not own
    kinds = [type(step).__name__ for step in data.transform.transforms]
    assert kinds == ["Resize", "InPlaceNormalize"]
    changed.restore()
    assert data.transform is data.again is own
    assert own.transforms == steps
    assert len(steps) == 3


def test_a_place_among_the_operations_is_found_among_the_steps(tmp_path):
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "0.jpg").write_bytes(b"")
    resize, flip = transforms.Resize(8), transforms.RandomHorizontalFlip()
    data = Data([resize, flip, *FLOATS, flip])
    exact, _ = change(data, "in_place_normalize")
    assert [exact.cut(["transform"], number) for number in range(6)] == [0, 1, 2, None, 3, 4]
    assert exact.names_of_steps()[2] == "InPlaceNormalize"
    assert exact.cut(["other"], 0) is None
    # What takes the decoder's place gives the transform its input.
    folder = datasets.ImageFolder(str(tmp_path), data.transform)
    tensors, _ = change(folder, "uint8_tensors")
    cuts = [tensors.cut(["transform"], number) for number in range(6)]
    assert cuts == [0, None, None, None, 3, 4]


def test_what_the_program_sets_meanwhile_stays():
    data = Data(FLOATS)
    changed, _ = change(data, "in_place_normalize")
    changed.put()
    data.transform = None
    changed.restore()
    assert data.transform is None
    changed.put()
    assert data.transform is None


def test_a_list_that_the_program_changes_is_used_as_it_is():
    data = Data([transforms.Resize(8), *FLOATS])
    changed, _ = change(data, "in_place_normalize")
    data.transform.transforms.append(transforms.RandomErasing())
    own = data.transform
    changed.put()
    assert data.transform is own
    del own.transforms[-1]
    changed.put()
    assert data.transform is not own


class TimedSteps:
    """A trace's way to time a list of steps, without the rest of a trace."""

    def __init__(self):
        self.recorder = Recorder()

    def place(self, steps):
        steps[:] = [stand_in(each, 1, self.recorder) for each in steps]


class Recorder:
    """Times nothing."""

    def __init__(self):
        self.timers = self

    def operation(self, function, number):
        return lambda _, *args: function(*args)

    def time_calls(self, made, original, operation):
        pass


def test_stand_ins_of_a_trace_are_seen_through_and_stay():
    data = Data([transforms.Resize(8), *FLOATS])
    trace = TimedSteps()
    trace.place(data.transform.transforms)
    own, timed = data.transform, list(data.transform.transforms)
    changed, _ = change(data, "in_place_normalize")
    changed.put()
    assert [type(each).__name__ for each in data.transform.transforms] == [
        "Resize",
        "InPlaceNormalize",
    ]
    assert not any(map(is_stand_in, data.transform.transforms))
    # What the trace puts into the changed transform is used by the next fetches.
    trace.place(data.transform.transforms)
    changed.keep()
    assert data.transform is own
    assert all(map(operator.is_, own.transforms, timed))
    changed.put()
    assert all(map(is_stand_in, data.transform.transforms))
    changed.restore()
    assert data.transform is own


def test_a_decoder_that_is_timed_stays_so_and_goes_with_the_alternative(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "0").mkdir()
    image.new("RGB", (9, 9), (200, 100, 50)).save(tmp_path / "0" / "0.jpg")
    steps = [transforms.Resize(4), transforms.ToTensor()]
    data = datasets.ImageFolder(tmp_path, transforms.Compose(steps))
    recorder = Recorder()
    own = data.loader = stand_in(data.loader, 1, recorder)
    changed, _ = change(data, "uint8_tensors")
    changed.put()
    assert data.loader is not own
    other = data.loader = stand_in(data.loader, 2, recorder)
    changed.keep()
    assert data.loader is own
    changed.put()
    assert data.loader is other
    changed.restore()
    assert data.loader is own


class Cropped(datasets.ImageFolder):
    """Its own code takes a picture from the decoder."""

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.transform(self.loader(path).crop((0, 0, 4, 4))), label


@pytest.mark.parametrize("kind", [datasets.ImageFolder, Cropped])
def test_a_decoder_is_replaced_only_where_its_picture_goes_to_the_transform(tmp_path, kind):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "0").mkdir()
    image.new("RGB", (9, 9), (200, 100, 50)).save(tmp_path / "0" / "0.jpg")
    data = kind(tmp_path, transforms.Compose([transforms.Resize(4), transforms.ToTensor()]))
    own = data[0][0]
    changed, _ = change(data, "uint8_tensors")
    changed.put()
    assert (data.loader is datasets.folder.default_loader) == (kind is Cropped)
    assert (data[0][0] - own).abs().max() < 4 / 255


def test_what_another_alternative_covers_is_no_misfit():
    data = Data([transforms.Resize(8), *FLOATS])
    changed, _ = change(data, "uint8_tensors", "in_place_normalize")
    assert (changed.names, changed.left) == (["uint8_tensors"], [])
    data = Data(FLOATS)
    changed, _ = change(data, "uint8_tensors", "in_place_normalize", "no_such_one")
    assert changed.names == ["in_place_normalize"]
    assert changed.left == ["uint8_tensors", "no_such_one"]


def test_where_nothing_fits_it_says_why():
    with pytest.raises(TransformChangeError, match="no alternative fits"):
        change(Data([transforms.ToTensor()]), "in_place_normalize", "uint8_tensors")
    with pytest.raises(TransformChangeError, match="not a Compose"):
        change(object(), "in_place_normalize")


def exact(before, after, draws=NAMES):
    notes = []
    step = ExactStep([KnownOperation(before)], [after], lambda: notes.append("differs"), draws)
    return step, notes


def test_a_result_that_differs_ends_it(monkeypatch):
    monkeypatch.setattr(transform_change, "CHECKED", 3)
    calls = []

    def after(value):
        calls.append(value)
        return torch.tensor([float(value if len(calls) < 4 else 0)])

    step, notes = exact(lambda value: torch.tensor([float(value)]), after)
    assert [step(value).item() for value in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert (calls, notes) == ([1, 2, 3, 4], ["differs"])


@pytest.mark.parametrize(
    "other",
    [
        lambda value: value.double(),
        lambda value: value.t().contiguous().t(),
        lambda value: value.reshape(-1),
        lambda value: -value,  # -0.0
        lambda value: value.tolist(),
        lambda value: value.to_sparse(),
    ],
)
def test_equal_means_each_bit_and_the_layout(other):
    step, notes = exact(lambda value: value, other)
    value = torch.zeros(2, 3)
    assert step(value) is value
    assert notes == ["differs"]


def test_a_single_number_is_compared_too():
    step, notes = exact(lambda value: value, lambda value: value.clone())
    value = torch.tensor(0.5)
    assert step(value) is not value
    assert notes == []


def test_an_error_is_the_operations_own():
    def fails(value):
        raise ZeroDivisionError("of the operation")

    def breaks(value):
        raise ValueError("of the alternative")

    step, notes = exact(fails, breaks)
    with pytest.raises(ZeroDivisionError):
        step(1)
    step, notes = exact(abs, breaks)
    assert (step(-1), step(-2), notes) == (1, 2, [])


DRAW = {
    "python": random.random,
    "numpy": lambda: float(np.random.rand()),
    "torch": lambda: float(torch.rand(())),
}


@pytest.mark.parametrize("draws", [("torch",), NAMES])
def test_an_alternative_that_draws_and_then_fails_leaves_the_random_numbers(draws):
    calls = []

    def own(value):
        return torch.tensor([value + DRAW[name]() for name in draws])

    def after(value):
        calls.append(value)
        result = own(value)
        if len(calls) == 4:  # a call whose result is not compared
            raise ValueError("in the middle")
        return result

    def seed():
        random.seed(5)
        np.random.seed(5)
        torch.manual_seed(5)

    seed()
    expected, left = [own(value) for value in range(6)], states()
    seed()
    step, notes = exact(own, after, draws)
    results = [step(value) for value in range(6)]
    assert all(map(torch.equal, results, expected))
    assert states() == left
    assert (calls, notes) == ([0, 1, 2, 3], [])


def test_an_alternative_that_draws_from_another_generator_than_it_says_ends():
    def own(value):
        return torch.tensor([value + random.random()])

    random.seed(5)
    expected = [own(value) for value in range(3)]
    random.seed(5)
    step, notes = exact(own, own, ["torch"])
    assert all(map(torch.equal, [step(value) for value in range(3)], expected))
    assert notes == ["differs"]


def test_exact_alternatives_say_which_generators_they_draw_from():
    modules = [alternative_files.load(name) for name in alternative_files.names()]
    exact_ones = [each for each in modules if getattr(each, "EXACT", False)]
    assert exact_ones
    assert all({*each.DRAWS} <= {*NAMES} for each in exact_ones)
