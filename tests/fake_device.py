"""An accelerator that only counts time: what lotus uses of `torch.cuda`, with one stream.

Work is launched for so many milliseconds and done in order, however late the host is. No test has
a real device: this one follows what the documentation of torch and CUDA says of events.
"""

import time
from types import SimpleNamespace


class Event:
    """A place in the stream: it is reached once all that was launched before it is done."""

    def __init__(self, device, enable_timing=False):
        device.made += 1
        self.device, self.timing, self.reached = device, enable_timing, None

    def record(self, stream):
        self.device.called("record")
        self.reached = max(self.device.now(), self.device.free)

    def query(self):
        self.device.called("query")
        return not self.device.stuck and self.device.now() >= self.reached

    def elapsed_time(self, other):
        self.device.called("elapsed_time")
        if not (self.timing and other.timing and self.query() and other.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (other.reached - self.reached) / 1e6


class FakeDevice:
    """In the place of `torch.cuda`; `failing` is the name of a call that raises."""

    def __init__(self, now=time.monotonic_ns, initialized=True):
        self.now, self.initialized = now, initialized
        self.free = 0  # when all that was launched is done
        self.made = 0
        self.failing, self.stuck, self.capturing = "", False, False
        self.current, self.contexts, self.stream = 0, {0}, "default"

    def launch(self, milliseconds):
        """Begin work of the program; the host goes on."""
        self.initialized = True
        self.free = max(self.now(), self.free) + round(milliseconds * 1e6)

    def called(self, name):
        if self.capturing:
            raise AssertionError(f"{name} while a graph is captured")
        if name == self.failing:
            raise RuntimeError(f"device lost in {name}\nmore of it")

    def is_initialized(self):
        return self.initialized

    def is_current_stream_capturing(self):
        return self.capturing

    def current_device(self):
        self.called("current_device")
        return self.current

    def device_count(self):
        return 2

    def current_stream(self, device):
        if device not in self.contexts:
            raise AssertionError("a context is created")
        return (device, self.stream)

    def Event(self, enable_timing=False):
        self.called("Event")
        return Event(self, enable_timing)

    def torch(self):
        """A module `torch` built for it."""
        return SimpleNamespace(
            cuda=self,
            version=SimpleNamespace(cuda="13.2", hip=None),
            _C=SimpleNamespace(_cuda_hasPrimaryContext=self.contexts.__contains__),
        )
