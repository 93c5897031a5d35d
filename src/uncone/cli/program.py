"""The program: its commands, and how each failure ends."""

import sys

from cyclopts import App

from uncone import __version__
from uncone.cli.check import check
from uncone.cli.compare import compare
from uncone.cli.convert import convert
from uncone.cli.diagnose import diagnose
from uncone.cli.report import report
from uncone.errors import UnconeError

app = App(
    name="uncone",
    help="Measure and explain representation degeneration in language models.\n\n"
    "Any command takes --debug, for a traceback instead of one line when something fails.",
    version=__version__,
)
app.command(check)
app.command(compare, usage="Usage: uncone compare [OPTIONS] BASELINE OTHER...")
app.command(convert)
app.command(diagnose)
app.command(report)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Exit status 0: done; 1: could not be done, with one line on standard error saying why; 2: `check` found a number beyond
    its bar; 130: stopped.
    """
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    from cyclopts import CycloptsError

    try:
        app(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _fail(f"{error} See `uncone --help`.", debug)
    except UnconeError as error:
        _fail(str(error), debug)
    except KeyboardInterrupt:
        _fail("stopped", debug, status=130)
    except MemoryError:
        _fail("out of memory: close other programs, or use a machine with more", debug)
    except RuntimeError as error:
        _fail(_told(error), debug)
    except OSError as error:
        _fail(f"{error.filename or 'input/output'}: {error.strerror or error}", debug)
    except Exception as error:  # a defect of uncone: still one line, and how to report it
        _fail(_defect(error), debug)


def _fail(message: str, debug: bool, status: int = 1) -> None:
    if debug:
        raise
    print(f"uncone: {_visible(message)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(status)


def _visible(message: str) -> str:
    from uncone.report.text import visible

    return visible(" ".join(message.split()))


def _told(error: RuntimeError) -> str:
    if "allocate" in str(error):  # torch has no MemoryError
        return "out of memory: close other programs, or use a machine with more"
    return _defect(error)


def _defect(error: Exception) -> str:
    first = (str(error).splitlines() or ["no message"])[0]
    return f"unexpected {type(error).__name__}: {first}: a defect in uncone; --debug shows where"
