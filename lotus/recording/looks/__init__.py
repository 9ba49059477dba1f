"""What threads are blocked in, and where, as seen from outside."""
