"""Event tables, one per micro-architecture, each with the source of every encoding."""

from native_map.events import amd, arm, generic, intel
from native_map.events.model import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        amd.ZEN4,
        amd.ZEN5,
        intel.SKYLAKE,
        intel.ICELAKE,
        intel.SAPPHIRE,
        intel.GRANITE,
        arm.N1,
        arm.N2,
        arm.V1,
        arm.V2,
        generic.TABLE,
    )
}
