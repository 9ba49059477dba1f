"""Files: read safely, written atomically, checked, sparse, or as memory."""
