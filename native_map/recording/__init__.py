"""What perf and py-spy recorded: files, records, command lines, clocks."""
