"""What a search decided, with its reasons."""
