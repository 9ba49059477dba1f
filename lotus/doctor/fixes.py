"""Commands that install or enable what a machine lacks for measuring, by distribution."""

from lotus.doctor.environment import System

_INSTALL_PERF = {  # by ID or ID_LIKE of /etc/os-release
    "ubuntu": "sudo apt install linux-tools-$(uname -r)",
    "debian": "sudo apt install linux-perf",
    "fedora": "sudo dnf install perf",
    "rhel": "sudo dnf install perf",
    "amzn": "sudo dnf install perf",
    "arch": "sudo pacman -S perf",
    "suse": "sudo zypper install perf",
    "alpine": "sudo apk add perf",
}
ENGINES = ("docker", "podman")


def sysctl(machine: System) -> tuple[str, ...]:
    """Return commands that let this user also measure its processes within the kernel."""
    setting = "sudo sysctl kernel.perf_event_paranoid=1"
    if machine.container:
        return (f"{setting}   # on the host", *unlock(machine))
    keep = "echo kernel.perf_event_paranoid=1 | sudo tee /etc/sysctl.d/60-lotus.conf"
    return (setting, f"{keep}   # after the next boot too")


def unlock(machine: System) -> tuple[str, ...]:
    """Return commands that make a container, or another seccomp filter, allow perf_event_open."""
    if machine.container in ENGINES or (machine.seccomp and not machine.container):
        tool = machine.container or "docker"
        return (
            f"{tool} run --cap-add PERFMON ...",
            f"{tool} run --cap-add PERFMON --security-opt seccomp=PROFILE.json ..."
            "   # with perf_event_open allowed in PROFILE.json, if the first is not enough",
        )
    if machine.container:
        return ()
    return ("grep PERF_EVENTS /boot/config-$(uname -r)   # is it built in?",)


def unlock_asks(machine: System) -> tuple[str, ...]:
    """Return the settings to request from the administrator of the container."""
    if machine.container == "kubernetes":
        return (
            'the container\'s securityContext: {capabilities: {add: ["PERFMON"]}}, and a'
            " seccompProfile that allows perf_event_open",
        )
    if machine.container and machine.container not in ENGINES:
        return (f"a seccomp filter of {machine.container} that allows perf_event_open",)
    return ()


def host_asks(machine: System) -> tuple[str, ...]:
    """Return the settings to request from the host; those of common hosts if it is unknown."""
    hosts = {
        "vmware": 'VMware: vpmc.enable = "TRUE" in the .vmx file, with the machine off',
        "microsoft": "Hyper-V: Set-VMProcessor NAME -Perfmon @('pmu')",
        "google": "Google Cloud: gcloud compute instances create --performance-monitoring-unit="
        "standard, on machine types that have it",
        "amazon": "Amazon EC2: .metal or a size that has a whole socket; a basic set of events also"
        " on smaller sizes from the seventh generation on (the sixth with Graviton)",
        "qemu": "QEMU/KVM: -cpu host,pmu=on (libvirt: <features><pmu state='on'/></features>),"
        " kvm.enable_pmu=1",
    }
    named = tuple(text for key, text in hosts.items() if key in machine.virtual.lower())
    return named or (hosts["qemu"], hosts["vmware"], hosts["amazon"])


def install_perf(machine: System) -> tuple[str, ...]:
    """Return the commands of its distribution, or of the two most common if it is unknown."""
    for name in machine.distribution:
        if name == "ubuntu" and machine.container:
            # The kernel is the host's: its package may not exist for this release.
            return (_INSTALL_PERF[name], "sudo apt install linux-tools-generic")
        if name in _INSTALL_PERF:
            return (_INSTALL_PERF[name],)
    return (_INSTALL_PERF["debian"], _INSTALL_PERF["fedora"])
