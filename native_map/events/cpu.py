"""Identifies the CPU and the table of its events."""

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from native_map.events import TABLES

_LARGEST_CPUINFO = 1 << 16  # the first CPU's paragraph is a few kilobytes

_ARM_IMPLEMENTER = 0x41


@dataclass(frozen=True)
class Cpu:
    """A machine's CPU. Unknown numbers are -1; `uarch` is then "generic".

    On Arm `family` is the implementer, `model` the part number and `stepping` variant * 16 +
    revision, so that r0p3 is 3. `virtual` is True if there are signs of a hypervisor; on Arm, only
    the firmware's tables show them. `slots` is the width of the pipeline as reported by the kernel
    (Arm only), 0 if it reports none.
    """

    vendor: str
    family: int
    model: int
    stepping: int
    name: str
    arch: str
    uarch: str
    virtual: bool
    slots: int = 0


def detect(
    proc_cpuinfo: str | None = None, sysfs: Path = Path("/sys"), arch: str | None = None
) -> Cpu:
    """Return the CPU from the text of /proc/cpuinfo (read if None), MIDR_EL1 and DMI in `sysfs`.

    Never raises for unexpected texts: a CPU that cannot be identified is generic. `arch` is used if
    the text does not imply one; the default is that of the running system.
    """
    if proc_cpuinfo is None:
        proc_cpuinfo = _read(Path("/proc/cpuinfo"))
    fields = _first_cpu(proc_cpuinfo[:_LARGEST_CPUINFO])
    midr = _midr(fields, sysfs)
    if "vendor_id" in fields:
        return _x86(fields)
    if midr is not None:
        return _arm(fields, midr, sysfs)
    arch = arch or platform.machine()
    return Cpu("", -1, -1, -1, fields.get("model name", ""), arch, "generic", _firmware_vm(sysfs))


def _first_cpu(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            if fields:
                break
            continue
        fields.setdefault(key.strip(), value.strip())
    return fields


def _uarch(vendor: str, family: int, model: int) -> str:
    """Return the name of the table that lists this CPU."""
    for name, table in TABLES.items():
        for cpus in table.cpus:
            if (vendor, family) == (cpus.vendor, cpus.family) and model in cpus.models:
                return name
    return "generic"


def _x86(fields: dict[str, str]) -> Cpu:
    vendor = fields["vendor_id"]
    family = _number(fields.get("cpu family"))
    model = _number(fields.get("model"))
    return Cpu(
        vendor=vendor,
        family=family,
        model=model,
        stepping=_number(fields.get("stepping")),
        name=fields.get("model name", ""),
        arch="x86_64",
        uarch=_uarch(vendor, family, model),
        virtual="hypervisor" in fields.get("flags", "").split(),
    )


def _midr(fields: dict[str, str], sysfs: Path) -> int | None:
    """MIDR_EL1: implementer 31:24, variant 23:20, part 15:4, revision 3:0 (Arm ARM)."""
    if "CPU implementer" in fields:
        implementer = _number(fields.get("CPU implementer"))
        part = _number(fields.get("CPU part"))
        variant = _number(fields.get("CPU variant"))
        revision = _number(fields.get("CPU revision"))
        if 0 <= implementer < 256 and 0 <= part < 4096 and 0 <= variant < 16 and 0 <= revision < 16:
            return implementer << 24 | variant << 20 | 0xF << 16 | part << 4 | revision
    if "vendor_id" in fields:
        return None
    text = _read(sysfs / "devices/system/cpu/cpu0/regs/identification/midr_el1")
    midr = _number(text.strip())
    return midr if midr > 0 else None


def _arm(fields: dict[str, str], midr: int, sysfs: Path) -> Cpu:
    implementer, part = midr >> 24 & 0xFF, midr >> 4 & 0xFFF
    vendor = "ARM" if implementer == _ARM_IMPLEMENTER else f"0x{implementer:02x}"
    uarch = _uarch(vendor, implementer, part)
    name = fields.get("model name", "") or uarch.replace("_", " ").title()
    return Cpu(
        vendor=vendor,
        family=implementer,
        model=part,
        stepping=(midr >> 20 & 0xF) << 4 | midr & 0xF,
        name="" if uarch == "generic" and "model name" not in fields else name,
        arch="aarch64",
        uarch=uarch,
        virtual=_firmware_vm(sysfs),
        slots=_slots(sysfs),
    )


def _slots(sysfs: Path) -> int:
    """PMMIR_EL1.SLOTS by way of caps/slots (Linux drivers/perf/arm_pmuv3.c)."""
    try:
        paths = sorted((sysfs / "bus/event_source/devices").glob("armv[89]*/caps/slots"))
    except OSError:
        return 0
    widths = {_number(_read(path).strip()) for path in paths[:64]}
    slots = widths.pop() if len(widths) == 1 else 0
    return slots if 0 < slots < 256 else 0


def _firmware_vm(sysfs: Path) -> bool:
    if _read(sysfs / "hypervisor/type").strip():
        return True
    vendor = _read(sysfs / "class/dmi/id/sys_vendor").strip()
    product = _read(sysfs / "class/dmi/id/product_name").strip()
    if vendor == "Amazon EC2":
        return not product.endswith(".metal")
    return vendor == "QEMU" or product in ("KVM Virtual Machine", "Virtual Machine")


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_CPUINFO)
    except OSError:
        return ""


def _number(text: str | None) -> int:
    """Return a decimal or 0x number, -1 if it is neither."""
    if text is None or not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,16}", text, re.ASCII):
        return -1
    return int(text, 16) if text[:2].lower() == "0x" else int(text)
