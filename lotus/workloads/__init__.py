"""Plain training scripts, as users write them, and the data they need."""
