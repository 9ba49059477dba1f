"""The exports that the Lotus authors published, where they lie beside the project."""

from pathlib import Path

import pandas as pd
import pytest

from native_map.paper.attribution import apply
from native_map.paper.importers import load
from native_map.paper.paper_mapping import Mapping, build, from_json, rows_of, to_json

DATA = Path(__file__).parents[5] / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not (DATA / "vtune" / "isolated").is_dir(),
    reason="the published exports are not in ../shared/data",
)

OPERATIONS = ["Collation", "Loader", "Normalize", "RandomHorizontalFlip", "RandomResizedCrop"]
OPERATIONS.append("ToTensor")
TOPDOWN = ["retiring", "frontend_bound", "bad_speculation", "backend_bound"]
LOOP = "_PyEval_EvalFrameDefault"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    files = sorted((DATA / "vtune" / "isolated").glob("*/*.csv"))
    return pd.concat([rows_of(load(file), file.parent.name, file.stem) for file in files])


@pytest.fixture(scope="module")
def mapping(runs: pd.DataFrame) -> Mapping:
    return build(runs)


def test_pairs_of_the_isolated_runs(mapping):
    frame = mapping.functions
    assert mapping.operations["name"].to_list() == OPERATIONS
    assert mapping.operations["runs"].to_list() == [10] * 6
    assert len(frame) == 62
    assert (frame["runs"] == 1).sum() == 19
    assert len(mapping.kept) == 43
    # The interpreter's own loop was met once, in ToTensor, though every operation runs in it.
    loop = frame[frame["function"] == LOOP]
    assert loop[["operation", "runs", "kept"]].to_numpy().tolist() == [["ToTensor", 1, False]]


def test_the_mapping_survives_json(mapping):
    pd.testing.assert_frame_equal(from_json(to_json(mapping)).functions, mapping.functions)


def test_shared_functions_follow_measured_time(mapping):
    memmove = mapping.functions.query("function == '__memmove_avx_unaligned_erms'")
    weights = memmove.set_index("operation")["weight"]
    # 15.54, 1.25 and 14.32 s of the isolated runs
    whole = 15.539965 + 1.251815 + 14.317822
    assert weights["Loader"] == pytest.approx(15.539965 / whole, rel=1e-6)
    assert weights["RandomResizedCrop"] == pytest.approx(1.251815 / whole, rel=1e-6)
    assert weights["ToTensor"] == pytest.approx(14.317822 / whole, rel=1e-6)


@pytest.mark.parametrize("workers", [8, 16, 28])
def test_each_operation_has_its_own_shares(mapping, workers):
    profile = load(DATA / "vtune" / "uarch" / f"b1024_gpu4_workers{workers}.csv")
    traced = pd.read_csv(DATA / "lotus_fig1_cpu_seconds.csv", index_col=0).loc[workers]
    summed, pairs, left = apply(mapping, profile, traced.to_dict())
    assert summed["operation"].to_list() == OPERATIONS
    # Back-end bound is what the others leave over; where that is below zero it is shown as zero.
    assert (summed[TOPDOWN] >= 0).all(axis=None)
    rest = 1 - summed[TOPDOWN[:3]].sum(axis=1).to_numpy()
    assert summed["backend_bound"].to_numpy() == pytest.approx(rest.clip(min=0))
    assert rest.min() > -0.01
    # In the published output retiring / front-end is 5.951 for all six.
    ratio = summed["retiring"] / summed["frontend_bound"]
    assert ratio.round(1).nunique() >= 5
    assert ratio.max() > 3 * ratio.min()
    for name in profile.additive:
        assert pairs[name].sum() + left[name].sum() == pytest.approx(profile.totals[name])
        assert profile.totals[name] == pytest.approx(profile.functions[name].sum())
    assert (pairs["match"] == "function").all()
    assert LOOP in set(left["function"])
    assert 0.7 < pairs["cpu_ns"].sum() / profile.totals["cpu_ns"] < 0.8


def test_an_operation_of_one_function_has_the_shares_of_it(mapping):
    profile = load(DATA / "vtune" / "uarch" / "b1024_gpu4_workers8.csv")
    flip = apply(mapping, profile)[0].set_index("operation").loc["RandomHorizontalFlip"]
    assert flip["cpu_ns"] == pytest.approx(22.595e9)
    assert flip[TOPDOWN].to_list() == pytest.approx([0.876, 0.023, 0.087, 0.014])


def test_the_isolated_collation_is_not_the_real_one(mapping):
    profile = load(DATA / "vtune" / "uarch" / "b1024_gpu4_workers8.csv")
    covered = apply(mapping, profile)[0].set_index("operation")["covered"]
    # It ran with OpenMP threads, whose barriers the workers' collation does not have.
    assert covered["Collation"] < 0.6
    assert covered.drop("Collation").min() > 0.99


@pytest.mark.parametrize(
    ("operation", "samples", "function"),
    [
        ("Loader", 5179, "jpeg_idct_16x16"),
        ("RandomHorizontalFlip", 302, "ImagingFlipLeftRight"),
        ("RandomResizedCrop", 200, "ImagingResampleHorizontal_8bpc"),
        ("Collation", 63434, "0x00018b10"),
    ],
)
def test_uprof_reports(operation, samples, function):
    profile = load(DATA / "uprof" / "isolated" / f"{operation}.csv")
    assert profile.kind == "uprof"
    assert profile.totals["samples"] == samples
    assert profile.totals["cpu_ns"] == samples * 1e6
    assert profile.functions["function"].iloc[0] == function
    assert profile.functions["samples"].sum() <= samples


def test_uprof_under_the_vtune_mapping_matches_other_versions_of_the_libraries(mapping):
    profile = load(DATA / "uprof" / "isolated" / "Loader.csv")
    summed, pairs, _ = apply(mapping, profile)
    shares = summed.set_index("operation")["cpu_ns"] / profile.totals["cpu_ns"]
    assert shares["Loader"] > 0.9
    assert set(pairs["match"]) == {"library"}  # libjpeg.so.9 there, libjpeg.so.9.5.0 here
