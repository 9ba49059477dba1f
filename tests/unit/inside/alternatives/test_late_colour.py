"""Which colour changes are put behind crops, and that they draw and give the same."""

import random

import pytest

from lotus.inside.common import alternative_files
from lotus.inside.common.alternative_files import KnownOperation, in_turn

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")


def stand_ins(steps):
    module = alternative_files.load("late_colour")
    return list(module.stand_ins([KnownOperation(step) for step in steps]))


def picture(mode="RGB", size=(96, 72)):
    small = image.frombytes(mode, (6, 5), random.Random(3).randbytes(30 * len(mode)))
    return small.resize(size)


def jitter(kind=v1):
    return kind.ColorJitter(brightness=0.4, saturation=0.4, hue=0.2)


# The first of the row, and how many there are in it.
ROWS = [
    ([jitter(), v1.Resize((24, 30))], (0, 2)),
    ([jitter(), v1.RandomHorizontalFlip(), v1.RandomResizedCrop(24), v1.ToTensor()], (0, 3)),
    (
        [v1.RandomHorizontalFlip(), v1.RandomApply([jitter()], p=0.8), v1.RandomGrayscale(0.5),
         v1.CenterCrop(40), v1.Resize(30), jitter(), v1.ToTensor()],
        (1, 4),
    ),
    ([jitter(v2), v2.RandomHorizontalFlip(), v2.RandomResizedCrop(24), v2.ToImage()], (0, 3)),
    ([v2.ToImage(), jitter(v2), v2.RandomCrop(40), v2.ToDtype(torch.float32, scale=True)], (1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "row"), ROWS)
def test_it_draws_the_same_and_gives_nearly_the_same(steps, row):
    ((first, count, made),) = stand_ins(steps)
    assert (first, count) == row
    for seed in range(5):
        results, states = [], []
        for functions in (steps, [*steps[:first], *made, *steps[first + count :]]):
            torch.manual_seed(seed)
            results.append(torch.as_tensor(v2.functional.to_image(in_turn(functions, picture()))))
            states.append(torch.get_rng_state())
        own, other = results
        assert torch.equal(*states)
        assert (other.dtype, other.shape) == (own.dtype, own.shape)
        whole = 1.0 if own.is_floating_point() else 255.0
        assert (own.double() - other.double()).abs().mean() <= 0.02 * whole


@pytest.mark.parametrize(
    "steps",
    [
        [v1.RandomResizedCrop(24), jitter()],
        [jitter(), v1.RandomCrop(40, padding=4)],
        [jitter(), v1.RandomCrop(400, pad_if_needed=True)],
        [jitter(), v1.RandomRotation(20), v1.Resize(24)],
        [v1.RandomApply([jitter(), v1.RandomRotation(20)]), v1.Resize(24)],
        [v1.RandomHorizontalFlip(), v1.Resize(24)],
        [jitter(), v1.ToTensor()],
        [],
    ],
)
def test_nothing_moves_past_what_it_would_change(steps):
    assert stand_ins(steps) == []


def test_each_row_has_a_stand_in():
    steps = [jitter(), v1.Resize(60), v1.RandomRotation(20), jitter(), v1.CenterCrop(30)]
    assert [(first, count) for first, count, _ in stand_ins(steps)] == [(0, 2), (3, 2)]


def test_what_is_no_picture_is_done_in_its_own_order():
    steps = [jitter(v2), v2.CenterCrop(40)]
    ((_, _, made),) = stand_ins(steps)
    pair = (v2.functional.to_image(picture()), 3)
    results = []
    for functions in (steps, made):
        torch.manual_seed(1)
        results.append(in_turn(functions, pair))
    assert torch.equal(results[0][0], results[1][0])
    assert results[1][1] == 3
