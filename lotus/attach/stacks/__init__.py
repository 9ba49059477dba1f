"""Python stacks of a running program: sampled by py-spy, and what their frames say."""
