"""From addresses to functions."""
