"""The verdict on a loader's loop: causes, ranked, each with its evidence and advice."""
