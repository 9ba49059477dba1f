"""Files that are opened while a sample is made."""

import sqlite3

from lotus.inside.cache import opened_files


def test_files_and_databases_count(tmp_path):
    plain, database = tmp_path / "plain", tmp_path / "database"
    plain.write_bytes(b"x")
    opened_files.start()
    plain.read_bytes()
    sqlite3.connect(database).close()
    sqlite3.connect(":memory:").close()
    opened, writes = opened_files.stop()
    assert opened[:2] == [str(plain), str(database)]
    assert not writes
    files = opened_files.of_sample(None, 0, opened)
    assert [path for path, _, _ in files] == opened[:2]
