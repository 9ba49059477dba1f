"""What the launcher recorded of the program from outside, as tables."""
