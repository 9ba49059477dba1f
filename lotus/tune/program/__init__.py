"""The interface of a program being tuned: trials of its own loader, in its own process."""
