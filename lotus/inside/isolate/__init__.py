"""Runs operations of a pipeline in isolation, for `lotus map build`, `advise` and `plan`."""
