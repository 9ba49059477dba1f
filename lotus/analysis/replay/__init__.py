"""Replays of a loader's epochs from their own times, with other settings."""
