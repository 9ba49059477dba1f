"""What several verbs share: their protocol, types of arguments, options, output."""
