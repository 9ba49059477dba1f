"""Python stacks of the program, sampled for some seconds."""
