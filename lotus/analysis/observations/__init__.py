"""What threads were seen doing: in which calls they were blocked, and at which lines."""
