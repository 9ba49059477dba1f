"""Events: what the tables say of them, and how they are spelt."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.events import TABLES, formulas, pmu, spelling
from native_map.events.event_model import SOFTWARE, Event
from tests.unit.pmus import UARCHES, row

# ── tables ───────────────────────────────────────────────────────────────────────────────────

# What the vendors' own tables in Linux tools/perf/pmu-events say, written down a second time.
ENCODINGS = {
    ("amd_zen5", "slots_frontend"): 0x1000001A0,
    ("amd_zen5", "slots_backend"): 0x100001EA0,
    ("amd_zen5", "slots_smt"): 0x1000060A0,
    ("amd_zen5", "ops_retired"): 0xC1,
    ("amd_zen5", "ops_dispatched"): 0x07AA,
    ("amd_zen5", "dram_loads"): 0x4843,
    ("amd_zen4", "l2_misses"): 0x0964,
    ("intel_skylake", "slots_frontend"): 0x019C,
    ("intel_skylake", "recovery_cycles"): 0x010D,
    ("intel_skylake", "ops_dispatched"): 0x010E,
    ("intel_skylake", "dtlb_load_misses"): 0x0E08,
    ("intel_icelake", "slots"): 0x0400,
    ("intel_icelake", "topdown_retiring"): 0x8000,
    ("intel_icelake", "topdown_bad_spec"): 0x8100,
    ("intel_icelake", "topdown_fe_bound"): 0x8200,
    ("intel_icelake", "topdown_be_bound"): 0x8300,
    ("intel_icelake", "itlb_misses"): 0x0E85,
    ("intel_sapphire", "topdown_heavy_ops"): 0x8400,
    ("intel_sapphire", "topdown_br_mispredict"): 0x8500,
    ("intel_sapphire", "topdown_fetch_lat"): 0x8600,
    ("intel_granite", "topdown_mem_bound"): 0x8700,
    ("intel_sapphire", "slots_counted"): 0x01A4,
    ("intel_sapphire", "slots_backend"): 0x02A4,
    ("intel_sapphire", "itlb_misses"): 0x0E11,
    ("intel_granite", "dtlb_store_misses"): 0x0E13,
    ("neoverse_v1", "slots_frontend"): 0x3E,
    ("neoverse_v1", "slots_backend"): 0x3D,
    ("neoverse_v2", "ops_retired"): 0x3A,
    ("neoverse_n2", "ops_dispatched"): 0x3B,
    ("neoverse_n1", "stalled_cycles_frontend"): 0x23,
    ("neoverse_n1", "stalled_cycles_backend"): 0x24,
}


def every_event(uarch: str) -> list[Event]:
    forms = [form for forms in TABLES[uarch].sets.values() for form in forms]
    return list(dict.fromkeys(event for form in forms for event in form.events))


@pytest.mark.parametrize(("where", "config"), ENCODINGS.items(), ids=lambda v: str(v))
def test_encodings_are_those_of_the_vendors_tables(where: tuple[str, str], config: int) -> None:
    uarch, name = where
    assert {e.config for e in every_event(uarch) if e.name == name} == {config}


@pytest.mark.parametrize("uarch", UARCHES)
def test_a_table_is_sound(uarch: str) -> None:
    known = pmu.sets(uarch)
    assert {"generic", "software", "branch"} <= set(known)
    events = every_event(uarch)
    assert len({e.name for e in events}) == len(events), "one name, one meaning"
    for event in events:
        assert not re.search(r"[,|\s]", event.name)
        assert event.text
        assert "Linux " in event.source
        assert event.flags in ("u", "uk")
        assert event.counters == 0 or event.type != SOFTWARE
    for forms in TABLES[uarch].sets.values():
        for form in forms:
            columns = ["cycles", "instructions", "task_clock", *(e.name for e in form.events)]
            given_by = formulas.metrics(row(**dict.fromkeys(columns, 1.0)), uarch).columns
            assert set(form.gives) <= set(given_by)
            assert form.optional <= {e.name for e in form.events}


# ── spelling ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uarch", "name", "perfs"),
    [
        ("amd_zen5", "slots_frontend", "cpu/event=0x1a0,umask=0x01/u"),
        ("amd_zen5", "ops_retired", "cpu/event=0xc1,umask=0x00/u"),
        ("intel_icelake", "slots", "cpu/event=0x00,umask=0x04/u"),
        ("neoverse_v1", "slots_frontend", "r3e:u"),
        ("amd_zen5", "context_switches", "context-switches:uk"),
        ("amd_zen5", "branch_misses", "branch-misses:u"),
    ],
)
def test_perfs_spelling_of_an_event_of_a_table(uarch: str, name: str, perfs: str) -> None:
    (event,) = (e for e in every_event(uarch) if e.name == name)
    parsed = spelling.parse(perfs)
    assert (parsed.type, parsed.config, parsed.config1, parsed.flags) == (
        event.type,
        event.config,
        event.config1,
        event.flags,
    )


@given(
    st.sampled_from(["cpu", "cpu_core", "armv8_pmuv3_0"]),
    st.integers(0, 2**64 - 1),
    st.sampled_from(["u", "k", "uk"]),
)
def test_any_config_is_read(device: str, config: int, flags: str) -> None:
    event = spelling.parse(f"{device}/config=0x{config:x}/{flags}")
    assert (event.type, event.config, event.flags) == (device, config, flags)


def test_terms_and_names_of_pmu_events() -> None:
    event = spelling.parse("cpu/event=0x0d,umask=0x1,cmask=1,edge,inv=1,name=recoveries/k")
    assert event.config == 0x0D | 1 << 8 | 1 << 18 | 1 << 23 | 1 << 24
    assert (event.name, event.flags) == ("recoveries", "k")


@given(st.text(max_size=60) | st.from_regex(r"[a-z0-9_]{1,8}/[a-z0-9=,x]{0,30}/[uk]{0,2}"))
def test_any_text_is_an_event_or_refused(text: str) -> None:
    try:
        event = spelling.parse(text)
    except UnusableError:
        return
    assert not re.search(r"[,|\s]", event.name)
    assert 0 <= event.config < 1 << 64


def test_a_pmus_number_comes_from_sysfs(tmp_path: Path) -> None:
    event = spelling.parse("armv8_pmuv3_0/event=0x3e/")
    with pytest.raises(UnusableError, match="no PMU 'armv8_pmuv3_0'"):
        spelling.type_number(event, tmp_path)
    device = tmp_path / "bus/event_source/devices/armv8_pmuv3_0"
    device.mkdir(parents=True)
    (device / "type").write_text("10\n")
    assert spelling.type_number(event, tmp_path) == 10
    (device / "type").write_text("ten\n")
    with pytest.raises(UnusableError):
        spelling.type_number(event, tmp_path)
    assert spelling.type_number(spelling.parse("r3e"), tmp_path) == 4
