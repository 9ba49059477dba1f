"""What each batch took, and where the time of the loop went."""
