"""What each thread did when, of operations with odd names."""

from lotus.reading.run import load
from tests.simulation import simulate


def test_an_operation_may_have_no_name(tmp_path):
    run = load(simulate(tmp_path / "run", workers=1, batches=2, ops=(("", 5_000), ("Flip", 3_000))))
    table = run.intervals
    operations = table[table["kind"] == "operation"]
    assert operations["operation"].value_counts().to_dict() == {"": 8, "Flip": 8}
    assert set(table[table["kind"] != "operation"]["operation"]) == {""}
