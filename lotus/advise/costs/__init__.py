"""Costs of operations that earlier plans on this machine have measured."""
