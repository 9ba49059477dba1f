"""Which CPU a machine has, from the texts that Linux gives."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_map.events import TABLES, cpu
from native_map.events.event_model import EventTable, Models


def x86(vendor: str, family: int, model: int, stepping: int = 1, flags: str = "fpu sse") -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU\nstepping\t: {stepping}\nflags\t\t: {flags}\n\n"
        "processor\t: 1\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
    )


def arm(part: int, variant: int = 3, revision: int = 1, implementer: int = 0x41) -> str:
    return (
        "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\n"
        f"CPU implementer\t: 0x{implementer:02x}\nCPU architecture: 8\n"
        f"CPU variant\t: 0x{variant:x}\nCPU part\t: 0x{part:03x}\nCPU revision\t: {revision}\n\n"
    )


@pytest.mark.parametrize(
    ("vendor", "family", "model", "uarch"),
    [
        ("AuthenticAMD", 0x17, 0x31, "generic"),  # Zen 2
        ("AuthenticAMD", 0x19, 0x01, "generic"),  # Milan, Zen 3
        ("AuthenticAMD", 0x19, 0x21, "generic"),  # Vermeer, Zen 3
        ("AuthenticAMD", 0x19, 0x11, "amd_zen4"),  # Genoa
        ("AuthenticAMD", 0x19, 0x61, "amd_zen4"),  # Raphael
        ("AuthenticAMD", 0x19, 0xA0, "amd_zen4"),  # Bergamo
        ("AuthenticAMD", 0x1A, 0x02, "amd_zen5"),  # Turin
        ("AuthenticAMD", 0x1A, 0x44, "amd_zen5"),
        ("AuthenticAMD", 0x1A, 0x50, "generic"),  # Zen 6
        ("HygonGenuine", 0x19, 0x11, "generic"),
        ("GenuineIntel", 6, 0x55, "intel_skylake"),
        ("GenuineIntel", 6, 0x6A, "intel_icelake"),
        ("GenuineIntel", 6, 0x8F, "intel_sapphire"),
        ("GenuineIntel", 6, 0xCF, "intel_sapphire"),
        ("GenuineIntel", 6, 0xAD, "intel_granite"),
        ("GenuineIntel", 6, 0x97, "generic"),  # Alder Lake, hybrid
        ("GenuineIntel", 6, 0x4F, "generic"),  # Broadwell
        ("GenuineIntel", 15, 0x55, "generic"),
    ],
)
def test_x86_cpus_are_known_by_vendor_family_and_model(
    vendor: str, family: int, model: int, uarch: str
) -> None:
    detected = cpu.detect(x86(vendor, family, model))
    assert detected.uarch == uarch
    assert (detected.vendor, detected.family, detected.model) == (vendor, family, model)
    assert detected.arch == "x86_64"
    assert detected.name == "Some CPU"


def test_only_the_first_cpu_of_the_text_counts() -> None:
    detected = cpu.detect(x86("AuthenticAMD", 26, 2, stepping=7))
    assert (detected.uarch, detected.stepping) == ("amd_zen5", 7)


def test_a_hypervisor_shows_in_the_flags_and_not_in_a_longer_word() -> None:
    assert cpu.detect(x86("AuthenticAMD", 26, 2, flags="fpu hypervisor sse")).virtual
    assert not cpu.detect(x86("AuthenticAMD", 26, 2, flags="fpu nohypervisor sse")).virtual


@pytest.mark.parametrize(
    ("part", "uarch"),
    [
        (0xD0C, "neoverse_n1"),
        (0xD40, "neoverse_v1"),
        (0xD49, "neoverse_n2"),
        (0xD4F, "neoverse_v2"),
        (0xD8E, "generic"),
    ],
)
def test_arm_cpus_are_known_by_part(tmp_path: Path, part: int, uarch: str) -> None:
    detected = cpu.detect(arm(part, variant=1, revision=2), tmp_path)
    assert detected.uarch == uarch
    assert (detected.arch, detected.vendor, detected.family, detected.model) == (
        "aarch64",
        "ARM",
        0x41,
        part,
    )
    assert detected.stepping == 0x12
    assert not detected.virtual


def test_a_part_number_means_nothing_from_another_maker(tmp_path: Path) -> None:
    assert cpu.detect(arm(0xD0C, implementer=0xC0), tmp_path).uarch == "generic"


def test_midr_in_sysfs_serves_where_cpuinfo_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "devices/system/cpu/cpu0/regs/identification/midr_el1"
    path.parent.mkdir(parents=True)
    path.write_text("0x00000000410fd493\n")
    detected = cpu.detect("processor : 0\n", tmp_path)
    assert (detected.uarch, detected.stepping, detected.model) == ("neoverse_n2", 3, 0xD49)


@pytest.mark.parametrize(
    ("texts", "slots"), [({"0": "0x00000008"}, 8), ({"0": "0x5", "1": "0x8"}, 0), ({"0": "x"}, 0)]
)
def test_the_kernel_tells_the_width_of_arm_pipelines(
    tmp_path: Path, texts: dict[str, str], slots: int
) -> None:
    assert cpu.detect(arm(0xD4F), tmp_path).slots == 0
    for number, text in texts.items():
        caps = tmp_path / f"bus/event_source/devices/armv8_pmuv3_{number}/caps"
        caps.mkdir(parents=True)
        (caps / "slots").write_text(text + "\n")
    assert cpu.detect(arm(0xD4F), tmp_path).slots == slots


@pytest.mark.parametrize(
    ("vendor", "product", "virtual"),
    [
        ("Amazon EC2", "c7g.large", True),
        ("Amazon EC2", "c7g.metal", False),
        ("QEMU", "KVM Virtual Machine", True),
        ("Ampere", "Altra", False),
    ],
)
def test_the_firmware_tells_virtual_arm_machines(
    tmp_path: Path, vendor: str, product: str, virtual: bool
) -> None:
    dmi = tmp_path / "class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "sys_vendor").write_text(vendor + "\n")
    (dmi / "product_name").write_text(product + "\n")
    assert cpu.detect(arm(0xD40), tmp_path).virtual is virtual


def test_no_text_is_an_unknown_cpu(tmp_path: Path) -> None:
    detected = cpu.detect("", tmp_path, arch="riscv64")
    assert (detected.uarch, detected.arch, detected.family) == ("generic", "riscv64", -1)


def test_this_machine_is_detected() -> None:
    detected = cpu.detect()
    assert detected.arch
    assert detected.uarch in TABLES


_line = st.one_of(
    st.text(max_size=30),
    st.builds(
        "{}\t: {}".format,
        st.sampled_from(
            "vendor_id,cpu family,model,stepping,flags,CPU implementer,CPU part,CPU variant,"
            "CPU revision,model name,processor".split(",")
        ),
        st.one_of(st.text(max_size=20), st.integers().map(str), st.integers().map(hex)),
    ),
)


@given(st.lists(_line, max_size=20).map("\n".join))
def test_any_text_gives_a_cpu_with_a_table(text: str) -> None:
    detected = cpu.detect(text, Path("/nonexistent"))
    assert detected.uarch in TABLES


def test_no_cpu_is_claimed_by_two_tables() -> None:
    claimed = [
        (cpus.vendor, cpus.family, model)
        for table in TABLES.values()
        for cpus in table.cpus
        for model in cpus.models
    ]
    assert len(set(claimed)) == len(claimed)
    assert [name for name, table in TABLES.items() if not table.cpus] == ["generic"]


def test_a_new_table_in_the_list_is_all_that_detection_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = Models("GenuineIntel", 19, (1,))
    monkeypatch.setitem(TABLES, "intel_new", EventTable("intel_new", "new", cpus=(models,)))
    assert cpu.detect(x86("GenuineIntel", 19, 1)).uarch == "intel_new"
    assert cpu.detect(x86("GenuineIntel", 19, 2)).uarch == "generic"
