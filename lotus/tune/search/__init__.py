"""The search for the best setting: trials, safety, rates, the check and the result."""
