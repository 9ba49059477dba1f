"""Event tables, one per micro-architecture, each with the source of every encoding.

To add a micro-architecture, add a file with its EventTable (its CPUs, its events, and the name of a
top-down formula or `expressions` in perf's notation) and an entry below.
"""

from native_map.events import amd, arm, generic, intel
from native_map.events.event_model import EventTable

_ALL = (
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
TABLES: dict[str, EventTable] = {table.name: table for table in _ALL}
