"""The command `kourou`. A module per command; heavy imports are inside the commands, so that `--help` is fast."""
