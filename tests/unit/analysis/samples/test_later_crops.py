"""Which crops come after an operation, by the places of both in their `Compose`."""

import pandas as pd
import pytest

from lotus.analysis.samples.later_crops import crops_by_order


def rows(*names: str, parent: str = "") -> pd.DataFrame:
    return pd.DataFrame(
        [
            (name, parent, index, "loader" if name.startswith("decode") else "transform")
            for index, name in enumerate(names)
        ],
        columns=["operation", "parent", "index", "kind"],
    )


def found(*tables: pd.DataFrame) -> dict[str, str]:
    operations = pd.concat(tables)
    return crops_by_order(operations, set(operations["operation"]))


def test_the_first_crop_behind_an_operation_is_found() -> None:
    assert found(rows("ColorJitter", "RandomResizedCrop", "Flip", "Resize", "ToTensor")) == {
        "ColorJitter": "RandomResizedCrop",
        "Flip": "Resize",
    }
    assert found(rows("t:denoise", "t:SmallestMaxSize")) == {"t:denoise": "t:SmallestMaxSize"}


@pytest.mark.parametrize(
    "tables",
    [
        (rows("Resize", "ColorJitter"),),
        (rows("decode (default_loader)", "Resize"),),
        (rows("a:ColorJitter"), rows("x", "b:Resize")),  # of another attribute
        (rows("ColorJitter", "Resize"), rows("Resize", "ColorJitter")),  # places differ
        (rows("ColorJitter"), rows("x", "Resize", parent="RandomApply")),
        (rows("ColorJitter", "Resize").iloc[:0],),
    ],
)
def test_other_operations_have_none(tables: tuple[pd.DataFrame, ...]) -> None:
    assert found(*tables) == {}


def test_a_crop_that_the_loader_does_not_call_does_not_count() -> None:
    assert crops_by_order(rows("ColorJitter", "Resize"), {"ColorJitter"}) == {}
