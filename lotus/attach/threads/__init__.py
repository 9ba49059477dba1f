"""Threads of a running program: what they wait for, their counters, their C functions."""
