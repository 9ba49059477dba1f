"""One file a verb: NAME, HELP, EPILOG, add_arguments(parser), run(args) -> exit code."""
