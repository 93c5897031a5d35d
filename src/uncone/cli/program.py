import gc
import os
import sys
import warnings

from cyclopts import App, Parameter

from uncone.cli.failures import SignalError, end, ending_cleanly, nobody_reads, open_closed_streams, release
from uncone.cli.files import check_files
from uncone.cli.report import report
from uncone.questions import GROUPS, QUESTIONS
from uncone.version import __version__

_HELP = (
    "Measure and explain representation degeneration in language models.\n\n"
    "Every command takes --debug, which shows a traceback instead of one line when something fails."
)
_usual = Parameter(negative="")
app = App(name="uncone", help=_HELP, version=__version__, default_parameter=_usual)
app.suppress_keyboard_interrupt = False  # otherwise it exits silently
app.command(report)
app.command(
    "uncone.cli.doctor:doctor", name="doctor", help="Show what this installation can do, and which extras are missing."
)
_groups = {name: App(name=name, help=line, default_parameter=_usual) for name, line in GROUPS.items()}
for group in _groups.values():
    app.command(group)
for name, (_, _, words, line) in QUESTIONS.items():
    if words:
        called, _, rest = words.partition(" ")
        within, place = (_groups[called], f"{called} ") if called in _groups else (app, "")
        last, _, subject = rest.partition(" ") if place else (called, "", rest)
        usage = f"Usage: uncone {place}{last} [OPTIONS] {subject}"
        within.command(f"uncone.cli.derived:{name}", name=last, help=line, usage=usage)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Exit status 0: done, also if the reader of a pipe left; 1: not done, with the reason on
    standard error; 2: a result beyond its bar, printed or not; 130: stopped; 128 plus its number: ended by a signal."""
    open_closed_streams()
    if "COLUMNS" in os.environ:
        from uncone.report.terminal import environment

        if "COLUMNS" not in environment():
            del os.environ["COLUMNS"]
    if arguments is None:
        warnings.showwarning = _say  # type: ignore[assignment]
        gc.set_threshold(100_000)  # the many points of a picture are in no cycles
    tokens = sys.argv[1:] if arguments is None else arguments
    try:
        with ending_cleanly():
            _run([token for token in tokens if token != "--debug"])
    except (Exception, SystemExit, KeyboardInterrupt, SignalError) as error:
        if nobody_reads(error):
            return
        if isinstance(error, SystemExit):
            raise
        ended = end(error, debug="--debug" in tokens)
        if isinstance(error, SignalError):
            os._exit(error.status)  # all is cleaned up; a thread in a long product would hold it for minutes
        raise ended from None
    finally:
        release("stdout")


def _say(message: Warning | str, *_: object) -> None:
    """Print a warning, without a path and a line of code."""
    from uncone.records.text import visible

    if sys.stderr is not None:
        print(f"uncone: {visible(str(message))}", file=sys.stderr)  # noqa: T201


def _run(tokens: list[str]) -> None:
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        check_files(bound)
        command(*bound.args, **bound.kwargs)
    except SystemExit as done:  # cyclopts leaves the program after any command
        if done.code:
            raise
    if sys.stdout is not None:
        sys.stdout.flush()  # a full disk can still be reported
