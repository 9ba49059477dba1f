"""The parts of a sampled loop that are charged to causes, and the evidence for them."""
