"""The command `kourou`. A module per noun; heavy imports happen inside the commands, so that `--help` is quick."""
