"""The paper's mapping from functions to operations: isolated runs, building, applying."""
