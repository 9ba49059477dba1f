"""Event logs, state pages and run.json as arrays, and the processes that they belong to."""
