"""What lotus doctor reads of a machine, from made /proc and /sys."""

import dataclasses
import json
import os
import sys
from pathlib import Path

from lotus.doctor import environment, examination
from tests.unit.machines import WHOLE


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_proc_and_sys_are_read(tmp_path: Path):
    facts = environment.system(
        make(
            tmp_path,
            {
                "proc/self/status": "Name:\tx\nCapEff:\t0000004000080000\nSeccomp:\t2\n",
                "proc/self/uid_map": "         0          0 4294967295\n",
                "etc/os-release": 'ID=ubuntu\nID_LIKE="debian"\n',
                "proc/sys/kernel/perf_event_paranoid": "4\n",
                "proc/sys/kernel/nmi_watchdog": "1\n",
                "proc/cpuinfo": "processor : 0\nmodel name : X\nflags : fpu hypervisor\n\n",
                "sys/class/dmi/id/sys_vendor": "VMware, Inc.\n",
                "sys/class/dmi/id/product_name": "VMware7,1\n",
                "sys/bus/event_source/devices/cpu/rdpmc": "2\n",
                "proc/1/cgroup": "0::/docker/abc\n",
            },
        ),
        {},
    )
    assert facts.capabilities == ("SYS_PTRACE", "PERFMON")
    assert facts.privileged
    assert facts.seccomp
    assert facts.distribution == ("ubuntu", "debian")
    assert (facts.paranoid, facts.watchdog, facts.rdpmc) == (4, 1, 2)
    assert facts.virtual == "VMware, Inc. VMware7,1"
    assert facts.container == "docker"
    assert facts.kptr_restrict is None


def test_root_of_a_user_namespace_has_no_rights_that_count_for_perf(tmp_path: Path):
    facts = environment.system(
        make(
            tmp_path,
            {
                "proc/self/status": "CapEff:\t000001ffffffffff\n",
                "proc/self/uid_map": "0 1000 1\n",
            },
        ),
        {},
    )
    assert facts.user_namespace
    assert not facts.privileged


def test_a_root_with_nothing_in_it_is_no_error(tmp_path: Path):
    facts = environment.system(tmp_path, {})
    assert (facts.paranoid, facts.container, facts.virtual, facts.pmus) == (None, "", "", ())
    report = examination.report(dataclasses.replace(WHOLE, system=facts))
    assert json.loads(json.dumps(report.document()))["schema"] == 2


def test_kubernetes_is_known_by_its_environment(tmp_path: Path):
    assert environment.system(tmp_path, {"KUBERNETES_SERVICE_HOST": "x"}).container == "kubernetes"


def test_bare_metal_is_not_called_virtual(tmp_path: Path):
    make(
        tmp_path,
        {
            "proc/cpuinfo": "flags : fpu sse2\n",
            "sys/class/dmi/id/sys_vendor": "Supermicro\n",
            "sys/class/dmi/id/product_name": "AS-1\n",
        },
    )
    assert environment.system(tmp_path, {}).virtual == ""


def test_symbols_of_a_file_are_read_from_its_headers(tmp_path: Path):
    own = environment.library("Python", Path(os.path.realpath(sys.executable)))
    assert own.symbols in ("all", "exported", "none")
    junk = tmp_path / "junk.so"
    junk.write_bytes(b"\x7fELF" + bytes(80))
    assert environment.library("x", junk).symbols in ("unreadable", "none")
    assert environment.library("x", tmp_path / "missing.so").symbols == "unreadable"


def test_another_distribution_with_a_package_lotus_is_seen(tmp_path: Path):
    def installed(name: str, record: str, top: str = "") -> None:
        folder = tmp_path / f"{name}-1.2.4.dist-info"
        files = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.4\n"}
        make(folder, files | {"RECORD": record} | ({"top_level.txt": top} if top else {}))

    installed("lotus_profiler", "lotus/__init__.py,,\n")
    installed("flowers", "flowers/lotus/__init__.py,,\nlotus.py,,\n")
    assert environment.namesakes([str(tmp_path)], tmp_path) == ((), ())
    installed("lotus_ai", "lotus/__init__.py,sha256=x,12\n")
    installed("older", "", top="lotus\n")
    both = ("lotus_ai 1.2.4", "older 1.2.4")
    assert environment.namesakes([str(tmp_path)], tmp_path) == (both, ())
    assert environment.namesakes([str(tmp_path)], tmp_path / "elsewhere") == ((), both)
