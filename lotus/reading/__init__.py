"""From event logs to tables: `Run`."""
