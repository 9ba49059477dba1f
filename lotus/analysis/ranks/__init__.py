"""The ranks of a job against each other: their steps, the straggler, and why."""
