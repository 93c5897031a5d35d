"""The command line. Only commands import heavy packages, so that `--help` answers at once."""

from uncone.errors import without_package

try:
    from uncone.cli.program import app, main
except ModuleNotFoundError as error:  # of cyclopts
    missing = without_package(error, "the command line")
    if missing is None:
        raise
    raise SystemExit(f"uncone: {missing}") from None

__all__ = ["app", "main"]
