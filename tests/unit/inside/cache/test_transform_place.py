"""Where a data set holds its transform, and what goes through it."""

import pytest

from lotus.inside.cache.transform_place import NoTransformError, Tap, TransformPlace, paths


class Data:
    def __init__(self, **state):
        self.__dict__.update(state)


class StandardTransform(Data):
    def __call__(self, value):
        return self.transform(value)


def double(value):
    return value * 2


def follow(value):
    return value + 1


def compose(*operations):
    transforms = pytest.importorskip("torchvision.transforms")
    return transforms.Compose(list(operations))


def test_paths_are_in_order_of_likelihood():
    transform = compose(double, follow)
    assert [*paths(Data(files=[1], augment=transform, transform=double))] == [
        ["augment"],
        ["transform"],
    ]
    inner = Data(transform=transform, transforms=StandardTransform(transform=transform))
    assert [*paths(Data(dataset=Data(dataset=inner)))] == [["dataset", "dataset", "transform"]]
    assert [*paths(Data(transform=None))] == []


def test_a_data_set_in_itself_ends():
    data = Data(transform=double)
    data.dataset = data
    assert next(paths(data)) == ["transform"]
    assert len([*paths(data)]) < 20


def test_all_places_of_a_transform_are_replaced_and_restored():
    transform = compose(double, follow)
    data = Data(transform=transform, transforms=StandardTransform(transform=transform))
    place = TransformPlace(data, ["transform"])
    assert place.names() == ["double", "follow"]
    seen = []
    tap = Tap(place, [0, 1, 2], lambda cut, value: seen.append((cut, value)))
    place.replace(tap)
    assert data.transform is data.transforms.transform is tap
    assert data.transforms(5) == 11
    place.restore()
    assert data.transform is data.transforms.transform is transform
    assert seen == [(0, 5), (1, 10), (2, 11)]
    assert (tap.single, tap.result) == (True, 11)


@pytest.mark.parametrize("calls", [0, 2])
def test_a_transform_that_is_not_called_once_is_not_single(calls):
    place = TransformPlace(Data(transform=double), ["transform"])
    tap = Tap(place, [0], lambda cut, value: None)
    assert [tap(number) for number in range(calls)] == [2 * number for number in range(calls)]
    assert not tap.single


def test_a_transform_of_two_values_is_passed_on():
    place = TransformPlace(Data(transform=lambda image, target: (target, image)), ["transform"])
    seen = []
    tap = Tap(place, [0, 1], lambda cut, value: seen.append(value))
    assert tap(1, 2) == (2, 1)
    assert (tap.single, seen) == (False, [])


def test_a_tap_has_the_attributes_of_the_transform():
    transform = compose(double)
    assert Tap(TransformPlace(Data(t=transform), ["t"]), [0], print).transforms == [double]


def test_no_transform():
    with pytest.raises(NoTransformError, match=r"no dataset\.transform"):
        TransformPlace(Data(dataset=Data()), ["dataset", "transform"])
