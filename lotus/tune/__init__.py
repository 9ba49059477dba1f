"""Finds the loader settings that feed a training fastest: settings, strategies and their replay."""
