"""What was seen of a program from outside, as tables, and the clocks of what was seen."""
