"""Programs in which nothing moves, and where their threads stand."""
