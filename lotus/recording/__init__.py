"""Recording a run: the launcher, recorders beside the program, `lotus.trace`, `lotus.span`."""
