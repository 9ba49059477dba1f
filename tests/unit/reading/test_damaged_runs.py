"""A run of which anything may be damaged: it is read or refused, and never a traceback."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from lotus.reading.run import load
from tests.logs import RunBuilder, pack_frame
from tests.simulation import simulate

TABLES = (
    "ops samples batches waits workers killed_workers loaders epochs resources operations paths "
    "processes lost notes unseen"
).split()


def build_all(path):
    """Load and build every table; LotusError is an answer too."""
    try:
        run = load(path)
        for name in TABLES:
            len(getattr(run, name))
    except LotusError:
        return None
    return run


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_run_is_read_or_refused(tmp_path_factory, data):
    # GIVEN a run of which one file was cut or changed anywhere
    path = simulate(tmp_path_factory.mktemp("runs") / "run", workers=1, batches=2)
    files = [path / "run.json", path / "processes.jsonl", *sorted((path / "events").iterdir())]
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        if at < len(content) and data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[at : at + data.draw(st.integers(1, 2_000))]
    file.write_bytes(content)
    # WHEN everything is read, THEN it is answered or refused in one line
    build_all(path)


_EXTREMES = [0, 1, 2, 100, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def extreme(draw, code):
    limit = {"Q": 2**64, "I": 2**32, "i": 2**31, "q": 2**63, "B": 2**8}[code]
    low = -limit if code in "iq" else 0
    return draw(st.sampled_from([n for n in (-1, *_EXTREMES) if low <= n < limit]))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_sound_frames_with_mad_numbers(tmp_path_factory, data):
    # GIVEN logs whose frames are whole and whose numbers make no sense
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "run")
    for pid in (100, 101):
        log = run.process(pid, start_ns=data.draw(st.sampled_from(_EXTREMES)), rank=pid - 100)
        log.operations("Loader")
        if data.draw(st.booleans()):
            log.iterator(0, 0, 0, 1, [201 - pid, pid], data.draw(st.booleans()))
        for _ in range(data.draw(st.integers(0, 3))):
            kind = data.draw(st.sampled_from([log_format.BATCH, log_format.WAIT, log_format.LOOSE]))
            _, fixed, arrays = log_format.FRAMES[kind]
            values = {name: extreme(data.draw, code) for name, code in fixed}
            rows = {
                name: [
                    [extreme(data.draw, code) for _, code in fields]
                    for _ in range(data.draw(st.integers(0, 2)))
                ]
                for name, fields in arrays
            }
            log.data += pack_frame(kind, values, rows)
    # WHEN everything is read, THEN every record is a row of its table or a counted loss
    tables = build_all(run.end())
    assert tables is not None
    kept = sum(len(process.log.fixed["wait"]) for process in tables._assembly.processes)
    assert len(tables.waits) == kept


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_events_with_mad_values(tmp_path_factory, data):
    # GIVEN events whose values are of any kind and size
    values = st.sampled_from([None, True, -1, 0, 5, 2**62, 2**63, 10**400, 1.5, "x", [], [1], {}])
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "run")
    log = run.process(data.draw(st.sampled_from([100, -1, 2**62])))
    log.loader(0)
    log.wait(0, 0, 0, start_ns=1, end_ns=2, tid=1)
    source = [json.loads(line) for line in EVENTS]
    for _ in range(data.draw(st.integers(1, 4))):
        event = dict(data.draw(st.sampled_from(source)))
        for name in data.draw(st.lists(st.sampled_from(sorted(event)), max_size=2)):
            event[name] = data.draw(values)
        log.event(**event) if isinstance(event["event"], str) else None
    # WHEN everything is read, THEN nothing is raised
    assert build_all(run.end()) is not None


EVENTS = [
    '{"event": "operations", "operations": [{"id": 1, "name": "a", "parent": 0, "index": 0}]}',
    '{"event": "loader", "loader": 0, "length": 3, "batch_size": 3, "timeout": 1}',
    '{"event": "iterator", "loader": 0, "epoch": 0, "start_ns": 1, "end_ns": 2, "workers": [100],'
    ' "resumed": false}',
    '{"event": "epoch_end", "loader": 0, "epoch": 0, "time_ns": 1, "batches": 2, '
    '"exhausted": true, "last_next_ns": 5}',
    '{"event": "shutdown", "loader": 0, "epoch": 0, "start_ns": 1, "end_ns": 2}',
    '{"event": "worker", "worker": 0, "loop_ns": 5, "process_ns": 5}',
    '{"event": "worker_ready", "worker": 0, "time_ns": 5}',
    '{"event": "worker_end", "worker": 0, "time_ns": 5}',
    '{"event": "sample_path", "sample": 1, "path": "x", "duration_ns": 5}',
    '{"event": "stopped", "why": "max-log", "bytes": 5}',
    '{"event": "unseen", "what": "x", "why": "y"}',
]
