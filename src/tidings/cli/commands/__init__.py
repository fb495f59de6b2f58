"""Declarations of the commands: their options and help. Each command imports its action when it runs, so that `--help`
stays fast."""
