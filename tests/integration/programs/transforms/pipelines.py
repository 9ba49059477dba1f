"""One loader a pipeline, in the order of NAMES; prints what user code may look at."""

import copy
import functools
import os
import pickle
import sys
import tempfile

import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


def double(value):
    return value * 2


class Data(Dataset):
    """Holds any attributes; `each` says what is done with a sample."""

    def __init__(self, each, **attributes):
        self.each = each
        self.__dict__.update(attributes)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.each(self, torch.full((3, 8, 8), index / 4))


class Named:
    """A composition in the style of other libraries: `transforms`, called with keywords."""

    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, **values):
        for transform in self.transforms:
            values = transform(**values)
        return values


class Blur:
    def __call__(self, image, **others):
        return {"image": image + 1, **others}


class TwoCrops:
    """A transform of the user's own with a pipeline inside."""

    def __init__(self, base):
        self.base = base

    def __call__(self, value):
        return torch.stack([self.base(value), self.base(value)])


def through(name):
    return lambda data, value: getattr(data, name)(value)


def generated(value):
    yield value


def in_turn(data, value):
    """A data set that calls its transforms itself."""
    for change in (*data.changes, *data.parts):
        value = change(value)
    return data.heads["last"](value)


def folder_of_images():
    folder = tempfile.mkdtemp()
    os.makedirs(os.path.join(folder, "a"))
    for number in range(4):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(os.path.join(folder, "a", f"{number}.png"))
    return ImageFolder(folder, v1.ToTensor(), target_transform=double)


def hugging_face(data):
    """As `datasets` keeps what set_transform was given."""
    data._format_kwargs = {"transform": double}
    return data


def pipelines():
    flip, norm = v1.RandomHorizontalFlip(p=0.5), v1.Normalize([0.5] * 3, [0.5] * 3)
    compose = v1.Compose([flip, norm, v1.Normalize([0.1] * 3, [0.2] * 3), double])
    nested = v1.Compose(
        [
            v1.RandomApply([v1.ColorJitter(0.1), v1.Grayscale(3)], p=1.0),
            v1.RandomOrder([v1.RandomVerticalFlip(), v1.Pad(1)]),
            v1.RandomChoice([v1.CenterCrop(4), v1.CenterCrop(6)]),
            v1.CenterCrop(4),
        ]
    )
    scale = v2.ToDtype(torch.float32, scale=True)
    modern = v2.Compose([scale, v2.RandomHorizontalFlip(), v2.Normalize([0.5], [0.5])])
    sequence = nn.Sequential(v1.CenterCrop(4), v1.Normalize([0.5] * 3, [0.5] * 3))
    single = Data(through("transform"), transform=functools.partial(torch.add, other=1.0))
    twice = Data(through("transform"), transform=v1.Compose([double]))
    yield "compose", Data(through("transform"), transform=compose)
    yield "nested", Data(through("transform"), transform=nested)
    yield "v2", Data(through("transform"), transform=modern)
    yield "sequential", Data(through("transform"), transform=sequence)
    yield (
        "lambda",
        Data(through("transform"), transform=v1.Compose([lambda x: x, v1.Lambda(double)])),
    )
    yield "single", single
    yield "folder", folder_of_images()
    keywords = Named(Blur(), Named(Blur()))
    yield "keywords", Data(lambda data, x: data.aug(image=x)["image"], aug=keywords)
    yield "own", Data(through("transform"), transform=TwoCrops(v1.Compose([flip, double])))
    yield (
        "subset",
        Subset(ConcatDataset([twice, Data(through("transform"), transform=double)]), [1, 5]),
    )
    yield "hugging_face", hugging_face(Data(lambda data, x: data._format_kwargs["transform"](x)))
    loops = {"changes": [flip, double, double], "parts": (norm, v1.Compose([v1.CenterCrop(4)]))}
    yield "loops", Data(in_turn, heads={"last": v1.Pad(1), "unused": v1.Pad(2)}, **loops)
    yield "telling", Data(through("image_transform"), image_transform=double, augment_with=nn.ReLU)
    many = [functools.partial(torch.mul, other=number) for number in range(17)]
    yield "many", Data(lambda data, x: data.loads[int(x.sum()) % 17](x), loads=many)
    yield "stages", Data(lambda data, x: next(data.stages[0](x)), stages=(generated, double))
    yield "models", Data(lambda data, x: data.nets[0](x), nets=[nn.Flatten()], heads={"a": nn.ReLU})


def look(dataset):
    """What a program might do with its own transforms while they are timed."""
    first, *_, last = dataset.transform.transforms
    flip = dataset.transform.transforms[0]
    print(isinstance(flip, v1.RandomHorizontalFlip), isinstance(flip, nn.Module), repr(flip))
    flip.p = 0.25
    print(first.p, last.__name__, last == double, callable(last), bool(flip))
    again = pickle.loads(pickle.dumps(dataset.transform))
    deep = copy.deepcopy(dataset.transform)
    for pipe in (again, deep):
        print(
            type(pipe.transforms[0]).__module__, pipe.transforms[0].p, pipe.transforms[-1] is double
        )


if __name__ == "__main__":
    workers = int(sys.argv[1])
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))  # no operation of a data set
    torch.manual_seed(0)
    for name, dataset in pipelines():
        for batch in DataLoader(dataset, batch_size=4, num_workers=workers):
            value = batch[0] if isinstance(batch, list) else batch
            print(name, round(float(value.sum()), 3))
        model(torch.zeros(1, 3, 8, 8))
        if name == "compose":
            look(dataset)
