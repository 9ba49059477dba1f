"""This machine: its cores, memory, processes, users and programs."""
