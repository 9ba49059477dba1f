"""The processes of candidates: made, watched and ended."""
