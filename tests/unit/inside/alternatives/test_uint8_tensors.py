"""Which operations are done on tensors of uint8, and that they draw and give the same."""

import random

import pytest

from lotus.inside.common import alternative_files
from lotus.inside.common.alternative_files import KnownOperation, in_turn

transforms = pytest.importorskip("torchvision.transforms")
image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")

NORMAL = transforms.Normalize([0.5, 0.4, 0.3], [0.2, 0.25, 0.3])
FLOATS = [transforms.ToTensor(), NORMAL]
NEAREST = transforms.InterpolationMode.NEAREST


def stand_ins(steps):
    module = alternative_files.load("uint8_tensors")
    return list(module.stand_ins([KnownOperation(step) for step in steps]))


def picture(mode="RGB", size=(60, 45)):
    small = image.frombytes(mode, (6, 5), random.Random(3).randbytes(30 * len(mode)))
    return small.resize(size)


@pytest.mark.parametrize(
    "steps",
    [
        [transforms.Resize(24), transforms.CenterCrop(20), *FLOATS],
        [transforms.Resize((24, 30), antialias=False), *FLOATS],
        [transforms.Resize(24, max_size=30), transforms.ToTensor()],
        [transforms.RandomCrop(50, padding=4, pad_if_needed=True), transforms.Resize(20), *FLOATS],
        [transforms.RandomResizedCrop(20), transforms.RandomHorizontalFlip(), *FLOATS],
        [transforms.RandomResizedCrop(20, interpolation=transforms.InterpolationMode.BICUBIC),
         transforms.RandomVerticalFlip(), transforms.ToTensor()],
    ],
)  # fmt: skip
def test_draws_shapes_and_values_stay(steps):
    ((first, count, made),) = stand_ins(steps)
    assert (first, count) == (0, len(steps))
    for seed in range(5):
        results, states = [], []
        for functions in (steps, made):
            torch.manual_seed(seed)
            results.append(in_turn(functions, picture()))
            states.append(torch.get_rng_state())
        own, other = results
        assert torch.equal(*states)
        assert (other.dtype, other.shape, other.stride()) == (own.dtype, own.shape, own.stride())
        assert (own - other).abs().max() <= 4 / 255 / 0.2


def test_what_it_does_not_know_is_done_as_before():
    steps = [transforms.Resize(24), *FLOATS]
    ((_, _, made),) = stand_ins(steps)
    for value in (picture("I;16"), picture("RGBA")):
        results = []
        for functions in (steps, made):
            try:
                results.append(in_turn(functions, value).tolist())
            except Exception as error:
                results.append((type(error), str(error)))
        assert results[0] == results[1]
    zero = [transforms.Resize(24), transforms.ToTensor(), transforms.Normalize([0.5], [0.0])]
    ((_, _, made),) = stand_ins(zero)
    with pytest.raises(ValueError, match="zero"):
        in_turn(made, picture())


@pytest.mark.parametrize(
    "steps",
    [
        FLOATS,  # nothing to gain
        [transforms.CenterCrop(20), *FLOATS],
        [transforms.Resize(24, interpolation=NEAREST), *FLOATS],
        [transforms.Resize(24), transforms.ColorJitter(0.5), *FLOATS],
        [transforms.Resize(24), transforms.PILToTensor()],
        [],
    ],
)
def test_others_stay_as_they_are(steps):
    assert stand_ins(steps) == []


def test_an_operation_before_it_stays():
    steps = [transforms.ColorJitter(0.5), transforms.Resize(24), *FLOATS]
    ((first, count, _),) = stand_ins(steps)
    assert (first, count) == (1, 3)
