"""The clocks of all records, in nanoseconds. Bound before the program can replace them."""

import time

clock = time.monotonic_ns
cpu_clock = time.thread_time_ns
process_cpu_clock = time.process_time_ns
