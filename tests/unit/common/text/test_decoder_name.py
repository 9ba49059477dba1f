"""A folder data set's decoder is shown by the name of its function."""

import pytest

from lotus.common.text import decoder_name
from lotus.common.text.formatting import operation_name


@pytest.mark.parametrize(
    ("noted", "shown"),
    [
        ([], "default_loader"),
        ([{}], "default_loader"),  # of an older log, which says nothing
        ([{"file": "/lib/torchvision/datasets/folder.py"}], "default_loader"),
        ([{"file": "/home/me/train.py"}], "loader"),
        ([{"function": "read_array", "file": "/home/me/train.py"}], "read_array"),
        ([{"function": "read_array"}, {"function": "read_array"}], "read_array"),
        ([{"function": "read_array"}, {"function": "default_loader"}], "loader"),
        ([{"function": r"\1"}], r"\1"),
        ([{"function": 1}], "default_loader"),
    ],
)
def test_the_function_is_named_that_all_runs_agree_on(noted, shown):
    for operation in noted:
        decoder_name.note({"kind": "loader", "name": "Loader", **operation})
    decoder_name.note({"kind": "transform", "function": "crop"})
    assert operation_name("Loader") == f"decode ({shown})"
    assert operation_name("Outer/Loader or Crop") == f"Outer/decode ({shown}) or Crop"
    assert operation_name("Loaders") == "Loaders"
