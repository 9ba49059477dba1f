"""Shared by the verbs: their protocol, types of arguments, options, output."""
