"""As much of torch as lotus's hooks hold on to, for Pythons without torch: see interpreted.py.

It starts in a twentieth of torch's time, so tests of what has nothing to do with torch use it too.
The parts have the names and the course of torch's own, and nothing that these do not need.
"""

__version__ = "0.0"
