"""A run in the formats of other tools: timelines, flame graphs, profiles, tables."""
