"""The command line: one command a verb, in a file of its name. It parses, calls the library function of the same name, and prints.

Everything heavy is imported inside the commands, so that `--help` answers at once.
"""

from uncone.cli.program import app, main

__all__ = ["app", "main"]
