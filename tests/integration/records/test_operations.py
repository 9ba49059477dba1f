"""Operations are found without code changes, named, nested, and not noticed by the program."""

import collections

import pytest

from tests.integration.conftest import ROOT, WARM

# loader -> operation -> (how often for 4 samples, parent)
EXPECTED = [
    {
        "RandomHorizontalFlip": (4, ""),
        "Normalize[0]": (4, ""),
        "Normalize[1]": (4, ""),
        "double": (4, ""),
    },
    {
        "RandomApply": (4, ""),
        "RandomApply/ColorJitter": (4, "RandomApply"),
        "RandomApply/Grayscale": (4, "RandomApply"),
        "RandomOrder": (4, ""),
        "RandomOrder/RandomVerticalFlip": (4, "RandomOrder"),
        "RandomOrder/Pad": (4, "RandomOrder"),
        "RandomChoice": (4, ""),
        "RandomChoice/CenterCrop[*]": (4, "RandomChoice"),
        "CenterCrop": (4, ""),
    },
    {"ToDtype": (4, ""), "RandomHorizontalFlip": (4, ""), "Normalize": (4, "")},
    {"CenterCrop": (4, ""), "Normalize": (4, "")},
    {"lambda": (4, ""), "Lambda": (4, "")},
    {"add": (4, "")},
    {"Loader": (4, ""), "ToTensor": (4, ""), "target_transform:double": (4, "")},
    {"aug:Blur": (4, ""), "aug:Named": (4, ""), "aug:Named/Blur": (4, "aug:Named")},
    {
        "TwoCrops": (4, ""),
        "TwoCrops/RandomHorizontalFlip": (8, "TwoCrops"),
        "TwoCrops/double": (8, "TwoCrops"),
    },
    {"double": (2, "")},
    {"double": (4, "")},
    # What is called at two places has the name of the first.
    {
        "changes:RandomHorizontalFlip": (4, ""),
        "changes:double[0]": (8, ""),
        "parts:Normalize": (4, ""),
        "parts:Compose/CenterCrop": (4, ""),
        "heads:last": (4, ""),
    },
    {"image_transform:double": (4, "")},
    {},  # too many to be transforms
    {},  # stages of a stream, which begin when the call has returned
    {},
]

AUGMENTATIONS = {
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color",
    "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
}  # fmt: skip


def counted(ops):
    """loader -> operation -> (count, parent); of several crops one is taken at random."""
    counts = [collections.Counter() for _ in EXPECTED]
    parents = {}
    for row in ops[["loader", "operation", "parent"]].itertuples(index=False):
        name = "RandomChoice/CenterCrop[*]" if "CenterCrop[" in row.operation else row.operation
        counts[row.loader][name] += 1
        parents[name] = row.parent
    return [{name: (number, parents[name]) for name, number in count.items()} for count in counts]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_every_kind_of_pipeline(pair, torch, workers):
    # GIVEN a program with one loader for each kind of pipeline
    plain, traced = pair("transforms/pipelines.py", workers)
    # THEN it prints the same, also where it looks at its own transforms
    assert (plain.code, plain.err) == (0, b"")
    assert (traced.code, traced.out, traced.err) == (0, plain.out, b"")
    assert plain.out.startswith(b"compose")
    # and every operation is there: two of one class are two, nested ones keep their nesting,
    # and the model's layers are none
    assert counted(traced.run.ops) == EXPECTED
    assert traced.run.notes == []


def test_nested_operations_lie_inside_their_parents(pair, torch):
    ops = pair("transforms/pipelines.py", "1")[1].run.ops
    inner = ops[ops["parent"] != ""]
    assert inner["nested"].all()
    assert not ops[ops["parent"] == ""]["nested"].any()
    outer = ops[ops["parent"] == ""].merge(
        inner,
        left_on=["loader", "position", "operation"],
        right_on=["loader", "position", "parent"],
    )
    assert len(outer) == len(inner)
    end_x, end_y = (outer[f"start_ns_{x}"] + outer[f"duration_ns_{x}"] for x in "xy")
    assert (outer["start_ns_x"] <= outer["start_ns_y"]).all()
    assert (end_x >= end_y).all()


def test_books_close(pair, torch):
    samples = pair("transforms/pipelines.py", "1")[1].run.samples
    assert (samples["self_ns"] >= 0).all()
    assert (samples["ops_ns"] + samples["self_ns"] == samples["duration_ns"]).all()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_augmentations_apply_by_name_is_inside_them(pair, torch, workers):
    # GIVEN a program that uses torchvision's, and compiles one of them
    plain, traced = pair("transforms/augmented.py", workers)
    assert (plain.code, plain.err) == (0, b"")
    assert (traced.code, traced.out, traced.err) == (0, plain.out, b"")
    # THEN each of those applied is an operation with a name, in the transform that applied it
    ops = traced.run.ops
    inner = ops[ops["parent"] != ""]
    assert inner["nested"].all()
    names = inner["operation"].str.partition("/")
    assert (names[0] == inner["parent"]).all()
    assert set(names[2]) <= AUGMENTATIONS
    assert inner.groupby(["loader", "parent"], observed=True).size().to_dict() == {
        (0, "RandAugment"): 12,
        (1, "TrivialAugmentWide"): 4,
        (2, "RandAugment"): 12,
        (2, "TrivialAugmentWide"): 4,
    }
    # What is compiled calls no function that could be seen.
    outer = ops[ops["parent"] == ""]
    assert outer.groupby("loader").size().tolist() == [4, 4, 8, 4]
    assert traced.run.notes == []
    assert not outer["nested"].any()


def test_paths_of_slow_samples(pair, torch):
    paths = pair("transforms/pipelines.py", "1")[1].run.paths
    assert sorted(path.rsplit("/", 1)[1] for path in paths["path"]) == [
        "0.png", "1.png", "2.png", "3.png",
    ]  # fmt: skip
    assert (paths["path"].str[-5].astype(int) == paths["sample"]).all()


def test_functions_and_methods_by_name(traced, torch):
    # WHEN functions of several kinds are asked for by name
    names = [
        "__main__:decode", "__main__:Reader.read", "__main__:Reader.check",
        "__main__:Reader.make", "posixpath:basename", "math:nothing", "__main__:Reader",
    ]  # fmt: skip
    options = tuple(word for name in names for word in ("--op", name))
    got = traced("transforms/labels.py", options=options)
    # THEN each call is an operation, in its nesting, and what cannot be wrapped is said
    assert (got.code, got.out, got.err) == (0, b"240.0\n", b"")
    ops = got.run.ops[got.run.ops["position"] >= 0]
    counts = ops["operation"].astype(str).value_counts().to_dict()
    assert counts == {
        "decode": 16, "Reader.read": 16, "Reader.check": 16, "Reader.make": 16, "basename": 16,
    }  # fmt: skip
    assert ops[ops["operation"] == "decode"]["nested"].all()
    assert any("math:nothing" in note for note in got.run.notes)
    assert any("is a class" in note for note in got.run.notes)


def test_spans(traced, torch):
    # GIVEN a program that labels regions, in the worker and in the main process
    got = traced("transforms/labels.py", str(ROOT))
    assert (got.code, got.out, got.err) == (0, b"272.0\n", b"")
    ops = got.run.ops
    inside = ops[ops["position"] >= 0]
    assert inside["operation"].astype(str).value_counts().to_dict() == {"resize": 16, "augment": 16}
    assert inside[inside["operation"] == "augment"]["nested"].all()
    steps = ops[ops["position"] < 0]
    assert steps["operation"].tolist() == ["train step"] * 4
    assert (steps["batch"] == -1).all()


def test_spans_outside_a_trace_do_nothing(pair, torch):
    plain, traced = pair("transforms/labels.py", str(ROOT))
    assert (plain.code, plain.out, plain.err) == (0, traced.out, b"")


def test_a_dataclass_stays_one_while_it_is_traced(torch, tmp_path, trace_command):
    script = tmp_path / "fields.py"
    script.write_text(
        "import dataclasses\n"
        "from torch.utils.data import DataLoader\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Times:\n"
        "    by: int\n"
        "    def __call__(self, number): return number * self.by\n"
        "@dataclasses.dataclass\n"
        "class Data:\n"
        "    transform: Times\n"
        "    def __len__(self): return 2\n"
        "    def __getitem__(self, index): return self.transform(index)\n"
        "data = Data(Times(3))\n"
        "print([batch.tolist() for batch in DataLoader(data, 2)])\n"
        "print(dataclasses.asdict(data), dataclasses.fields(data.transform)[0].name)\n"
        "print(dataclasses.astuple(data.transform), dataclasses.replace(data.transform, by=4))\n"
    )
    got = trace_command(WARM, script)
    assert got.out.decode().splitlines() == [
        "[[0, 3]]",
        "{'transform': {'by': 3}} by",
        "(3,) Times(by=4)",
    ]
    assert (got.code, len(got.run.ops)) == (0, 2)
