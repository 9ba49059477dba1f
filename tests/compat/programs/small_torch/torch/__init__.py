"""As much of torch as lotus's hooks hold on to, for Pythons without torch: see interpreted.py.

The parts have the names and the course of torch's own, and nothing that these do not need.
"""

__version__ = "0.0"
