"""The work of the commands. The modules of `tidings.cli.commands` parse the options and call these functions."""
