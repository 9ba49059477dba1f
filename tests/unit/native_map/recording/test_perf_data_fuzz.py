"""Hostile perf.data: bounded memory, and `UnusableError` or a recording that adds up."""

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.recording import perf_data

TRACES = Path(__file__).parents[4] / "traces" / "perf"
NAMES = ("two_events", "mixed", "pipe", "compressed")
WHOLE = {name: (TRACES / f"{name}.data").read_bytes() for name in NAMES}
MOST_BYTES = 64 << 20

relaxed = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
names = st.sampled_from(sorted(WHOLE))
sizes = st.sampled_from([0, 1, 7, 8, 16, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1])


@pytest.fixture(autouse=True)
def without_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    """What our reader hands on to perf is perf's affair, not that of these tests."""
    real = perf_data.read
    monkeypatch.setattr(perf_data, "read", lambda path: real(path, perf="no-such-perf"))


def check(path: Path, content: bytes) -> None:
    """Read it all; nothing but `UnusableError` comes out, and the numbers agree."""
    path.write_bytes(content)
    message = ""
    tracemalloc.start()
    try:
        recording = perf_data.read(path)
        samples = recording.samples
        assert sum(len(chunk) for chunk in recording.chunks(64)) == len(samples) == len(recording)
        counted = recording.counted.get("sample", 0)
        assert counted == len(samples) + recording.unreadable
        assert bool(recording.unreadable or recording.unread) <= bool(recording.damage)
        if len(samples):
            assert 0 <= samples["event"].min() <= samples["event"].max() < len(recording.events)
        assert len(recording.mappings) <= 2_000_000
        for text in (*recording.damage, *recording.events, *recording.mappings["path"]):
            text.encode()
    except UnusableError as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert "\n" not in message


@relaxed
@given(
    name=names, flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1)
)
def test_flipped_bytes(tmp_path: Path, name: str, flips: list[tuple[int, int]]) -> None:
    content = bytearray(WHOLE[name])
    for place, value in flips:
        content[place % len(content)] = value
    check(tmp_path / "f", bytes(content))


@relaxed
@given(name=names, flips=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1))
def test_flipped_bytes_in_the_header(
    tmp_path: Path, name: str, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(WHOLE[name])
    for place, value in flips:
        content[place] = value
    check(tmp_path / "f", bytes(content))


@relaxed
@given(
    name=st.sampled_from(NAMES[:2]), place=st.integers(0, 2**16), size=sizes, behind=st.booleans()
)
def test_huge_sizes(tmp_path: Path, name: str, place: int, size: int, behind: bool) -> None:
    """In the header's own words, and in the features behind the records."""
    content = bytearray(WHOLE[name])
    data_at, data_size = struct.unpack_from("<QQ", content, 40)
    if behind:
        start = data_at + data_size
        at = start + place % (len(content) - start - 8)
    else:
        at = place % (data_at // 8) * 8
    struct.pack_into("<Q", content, at, size)
    check(tmp_path / "f", bytes(content))


@relaxed
@given(name=names, length=st.integers(0, 2**20))
def test_truncation_anywhere(tmp_path: Path, name: str, length: int) -> None:
    check(tmp_path / "f", WHOLE[name][: length % len(WHOLE[name])])


@relaxed
@given(content=st.binary(max_size=4096), head=st.booleans())
def test_records_of_noise(tmp_path: Path, content: bytes, head: bool) -> None:
    before = b""
    if head:
        whole = WHOLE["mixed"]
        before = bytearray(whole[: struct.unpack_from("<Q", whole, 40)[0]])
        struct.pack_into("<Q", before, 48, len(content))
    check(tmp_path / "f", bytes(before) + content)


@relaxed
@given(
    records=st.lists(
        st.tuples(
            st.sampled_from([*range(1, 22), *range(64, 84)]),
            st.integers(0, 2**16 - 1),
            st.integers(0, 40),
            st.binary(max_size=64),
        ),
        max_size=60,
    )
)
def test_well_formed_records_of_noise(
    tmp_path: Path, records: list[tuple[int, int, int, bytes]]
) -> None:
    """Every record hops to the next; what it holds is anything."""
    whole = WHOLE["mixed"]
    head = bytearray(whole[: struct.unpack_from("<Q", whole, 40)[0]])
    body = b""
    for kind, misc, words, noise in records:
        payload = (noise * (8 * words // max(len(noise), 1) + 1))[: 8 * words].ljust(8 * words)
        body += struct.pack("<IHH", kind, misc, 8 + len(payload)) + payload
    struct.pack_into("<Q", head, 48, len(body))
    check(tmp_path / "f", bytes(head) + body)
