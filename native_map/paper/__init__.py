"""The Lotus paper's mapping by isolated runs, and profiles of other tools."""
