"""What a run does while it goes on: `lotus top`, `lotus trace --live`."""
