"""What is said of joined and mapped counts, on tables small enough to check by hand."""

import numpy as np
import pandas as pd
import pytest

from native_map.estimate import validation


def joined_of(rows):
    """(operation, samples, count, low, high, calibrated, its low, its high) as a table."""
    names = ["operation", "samples", "count", "low", "high"]
    names += ["calibrated", "calibrated_low", "calibrated_high"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(kind="operation", helper_of="", event="cycles")


def exact_of(rows):
    table = pd.DataFrame(rows, columns=["operation", "exact"])
    return table.assign(kind="operation", event="cycles")


JOINED = joined_of(
    [
        (
            "Loader",
            4000,
            860.0,
            840.0,
            880.0,
            1000.0,
            980.0,
            1020.0,
        ),  # throttled: calibrated, right
        ("Crop", 1000, 97.0, 90.0, 104.0, 112.0, 105.0, 119.0),  # right, and then no longer
        ("Flip", 999, 50.0, 40.0, 60.0, 58.0, 48.0, 68.0),  # too few samples to be judged
        ("Wide", 1500, 100.0, 85.0, 115.0, 100.0, 85.0, 115.0),  # holds it, says little
    ]
)
EXACT = exact_of([("Loader", 1000.0), ("Crop", 100.0), ("Flip", 58.0), ("Wide", 100.0)])


def test_errors_intervals_and_judgement():
    # GIVEN also a mapping that gives Loader too much and does not know Wide
    mapped = pd.DataFrame(
        {"operation": ["Loader", "Crop"], "event": "cycles", "mapped": [1670.0, 39.0]}
    )
    # WHEN all is held against the exact counts
    table = validation.with_mapping(validation.validate(EXACT, JOINED), mapped)
    table = table.set_index("operation")
    # THEN each way of counting has its own error
    assert table["err_joined"].to_dict() == pytest.approx(
        {"Loader": -0.14, "Crop": -0.03, "Flip": -8 / 58, "Wide": 0.0}
    )
    assert table.loc["Loader", ["err_calibrated", "err_mapped"]].tolist() == pytest.approx(
        [0, 0.67]
    )
    assert table.loc["Crop", "err_mapped"] == pytest.approx(-0.61)
    assert np.isnan(table.loc["Wide", "err_mapped"])
    # AND good is: enough samples' worth of precision, and near or within the interval
    assert table["within_ci"].to_dict() == {
        "Loader": False, "Crop": True, "Flip": True, "Wide": True
    }  # fmt: skip
    assert not table.loc["Crop", "calibrated_within_ci"]
    assert table["judged"].to_dict() == {
        "Loader": True, "Crop": True, "Flip": False, "Wide": True
    }  # fmt: skip
    assert table["good"].to_dict() == {
        "Loader": False, "Crop": True, "Flip": False, "Wide": False
    }  # fmt: skip


def test_a_summary_judges_only_what_has_enough_samples():
    table = validation.validate(EXACT, JOINED)
    summary = validation.summary(table).iloc[0]
    assert summary[["operations", "judged", "good", "within_ci"]].tolist() == [4, 3, 1, 2]
    assert summary["joined_worst"] == pytest.approx(0.14)
    assert summary["calibrated_worst"] == pytest.approx(0.12)
    assert np.isnan(summary["mapped_median"])


def test_calibration_is_no_prediction_for_the_only_operation():
    only = exact_of([("Loader", 1000.0), ("Flip", 58.0)])
    table = validation.validate(only, JOINED)
    assert table.set_index("operation")["fitted"].to_dict() == {"Loader": True, "Flip": False}


def test_an_operation_without_samples_is_a_row_and_not_good():
    table = validation.validate(exact_of([("Rare", 5.0), ("Idle", 0.0)]), JOINED)
    assert table["samples"].tolist() == [0, 0]
    assert table["err_joined"].isna().all()
    assert not table["good"].any()


def functions_of(rows):
    table = pd.DataFrame(rows, columns=["operation", "library", "function", "share", "count"])
    return table.assign(kind="operation", helper_of="", event="cycles")


def test_precision_and_recall_of_a_mapping():
    # GIVEN what the join saw, and a mapping that misses one function and invents another
    seen = functions_of(
        [
            ("Loader", "libjpeg.so", "idct", 0.70, 700.0),
            ("Loader", "libc.so", "memcpy", 0.295, 295.0),
            ("Loader", "libc.so", "free", 0.005, 5.0),
            ("Flip", "libc.so", "memcpy", 1.0, 50.0),
        ]
    )
    mapping = pd.DataFrame(
        [
            ("Loader", "libjpeg.so", "idct", 9.0),
            ("Loader", "libc.so", "free", 0.5),
            ("Loader", "python3", "eval", 0.5),
            ("Crop", "libc.so", "memcpy", 1.0),
        ],
        columns=["operation", "library", "function", "weight"],
    )
    # WHEN they are compared
    table = validation.precision_recall(mapping, seen, "cycles").set_index("operation")
    # THEN a rare function is right where mapped, but need not have been found
    loader = table.loc["Loader"]
    assert loader[["mapped", "joined", "both"]].tolist() == [3, 2, 1]
    assert loader["precision"] == pytest.approx(2 / 3)
    assert loader["precision_weighted"] == pytest.approx(0.95)
    assert loader["recall"] == pytest.approx(0.5)
    assert loader["recall_count"] == pytest.approx(0.705)
    # AND operations that only one of them knows are there
    assert table.loc["Flip", "recall"] == 0
    assert np.isnan(table.loc["Flip", "precision"])
    assert table.loc["Crop", "precision"] == 0
    assert np.isnan(table.loc["Crop", "recall"])


def test_a_mapping_that_knows_no_library_goes_by_function():
    seen = functions_of([("Loader", "libjpeg.so", "idct", 1.0, 10.0)])
    mapping = pd.DataFrame([("Loader", "", "idct")], columns=["operation", "library", "function"])
    row = validation.precision_recall(mapping, seen, "cycles").iloc[0]
    assert (row["precision"], row["recall"]) == (1, 1)
    mapping["library"] = "libpng.so"
    row = validation.precision_recall(mapping, seen, "cycles").iloc[0]
    assert (row["precision"], row["recall"]) == (0, 0)
