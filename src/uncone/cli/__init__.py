"""The command line: one command a verb, in a file of its name. It parses, calls the verb, and prints.

Everything heavy is imported inside the commands, so that `--help` answers at once.
"""

from uncone.cli.program import app, main

__all__ = ["app", "main"]
