"""The time of a sampled loop, divided by what it was spent on and what it waited for."""
