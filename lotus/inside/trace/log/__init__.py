"""The files of a process: the event log, the page of its state, and what fills them."""
