"""The command line: one command a verb. It parses, calls the library function of the same name, and prints.

Everything heavy is imported inside the commands, so that `--help` answers at once.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from uncone import __version__
from uncone.errors import InputError, UnconeError
from uncone.records import Diagnosis

PROGRESS_AFTER_S = 2.0
BEYOND = 2

app = App(
    name="uncone",
    help="Measure and explain representation degeneration in language models.\n\n"
    "Any command takes --debug, for a traceback instead of one line when something fails.",
    version=__version__,
)


@app.command
def diagnose(
    spec: str,
    /,
    *,
    json: Annotated[Path | None, Parameter(help="Write the whole diagnosis to this file, for machines.")] = None,
    html: Annotated[Path | None, Parameter(help="Write a report with pictures to this file, for people.")] = None,
    counts: Annotated[
        Path | None, Parameter(help="How often each token occurs: a table of ids or tokens and counts, or .npy.")
    ] = None,
    neighbours: Annotated[
        bool,
        Parameter(negative="", help="Also measure what takes the nearest neighbours of every row; minutes for large tables."),
    ] = False,
    device: Annotated[str, Parameter(help="Where products are computed, a torch device such as cuda.")] = "cpu",
    skip_nonfinite: Annotated[
        bool, Parameter(negative="", help="Leave out rows with NaN or inf instead of refusing them.")
    ] = False,
) -> None:
    """Say how degenerate a token table and an output head are, why, and what to do next.

    Parameters
    ----------
    spec
        A model (MODEL, MODEL#input, MODEL#head, MODEL#tensor): a directory, the name of a cached one (NAME or
        NAME@REVISION), a GGUF file or a llama2.c file. Or a file of matrices, FILE or FILE#tensor.
    """
    from uncone import report
    from uncone.diagnosis import diagnose as run

    _check_targets(json, html)
    with _progress() as progress:
        diagnosis = run(
            spec, counts=counts, neighbours=neighbours, skip_nonfinite=skip_nonfinite, device=device, progress=progress
        )
    if json is not None:
        diagnosis.save(json)
    if html is not None:
        report.write_html(diagnosis, html)
    report.print_diagnosis(diagnosis)
    _tell(json, html)


@app.command
def report(
    diagnosis: Path,
    /,
    *,
    html: Annotated[
        Path | None, Parameter(help="Write the report with pictures to this file; without it, print to the terminal.")
    ] = None,
) -> None:
    """Turn a saved diagnosis into a report again, without the model.

    Parameters
    ----------
    diagnosis
        A file written by `uncone diagnose SPEC --json FILE`.
    """
    from uncone import report as reports

    _check_targets(html, read=(diagnosis,))
    loaded = Diagnosis.load(diagnosis)
    if html is None:
        reports.print_diagnosis(loaded)
        return
    reports.write_html(loaded, html)
    _tell(html)


@app.command(usage="Usage: uncone compare [OPTIONS] BASELINE OTHER...")
def compare(
    *diagnoses: Path,
    names: Annotated[
        str | None, Parameter(help="What to call them, in their order and separated by commas; else their own names.")
    ] = None,
    json: Annotated[Path | None, Parameter(help="Write the whole comparison to this file, for machines.")] = None,
    html: Annotated[Path | None, Parameter(help="Write a report with overlaid drawings to this file, for people.")] = None,
) -> None:
    """Say what became better or worse between saved diagnoses, and draw them over each other.

    Parameters
    ----------
    diagnoses
        Two to six files written by `uncone diagnose SPEC --json FILE`; the first is the baseline.
    """
    from uncone import report
    from uncone.comparison import compare as run

    _check_targets(json, html, read=diagnoses)
    comparison = run([_load(path) for path in diagnoses], names=None if names is None else names.split(","))
    if json is not None:
        comparison.save(json)
    if html is not None:
        report.write_comparison_html(comparison, html)
    report.print_comparison(comparison)
    _tell(json, html)


@app.command
def check(
    diagnosis: Path,
    /,
    *,
    max: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=VALUE: the number NAME must not be above VALUE. Can be given again."),
    ] = None,
    min: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=VALUE: the number NAME must not be below VALUE. Can be given again."),
    ] = None,
    json: Annotated[Path | None, Parameter(help="Write the result to this file, for machines.")] = None,
) -> None:
    """Hold numbers of a saved diagnosis against bars: exit status 0 within all, 1 could not be measured, 2 beyond one.

    Parameters
    ----------
    diagnosis
        A file written by `uncone diagnose SPEC --json FILE`. Its numbers are called SUBJECT.MEASURE, such as
        input.isoscore, or SUBJECT.MEASURE.DETAIL; SUBJECT may be left out where there is one.
    """
    from uncone import report
    from uncone.checking import check as run

    _check_targets(json, read=(diagnosis,))
    result = run(_load(diagnosis), maxima=_bars(max, "--max"), minima=_bars(min, "--min"))
    if json is not None:
        result.save(json)
    report.print_check(result)
    _tell(json)
    if not result.ok:
        raise SystemExit(BEYOND)


@app.command
def convert(
    model: Path,
    out: Path,
    /,
    *,
    tokenizer: Annotated[
        Path | None, Parameter(help="Its tokenizer, where that is not tokN.bin or tokenizer.bin beside the model.")
    ] = None,
) -> None:
    """Write a llama2.c model as a Llama directory that transformers opens: the same logits, the same tokens.

    Parameters
    ----------
    model
        A llama2.c file, or the directory that holds one.
    out
        The directory to write. It must not exist yet.
    """
    from uncone.model import to_hugging_face

    _tell(to_hugging_face(model, out, tokenizer=tokenizer))


def _tell(*written: Path | None) -> None:
    """Name the files that were written; a name may hold anything, also what no terminal should get."""
    from uncone.report.text import visible

    for path in written:
        if path is not None:
            print(f"wrote {visible(str(path))}")  # noqa: T201 - the command's answer


def _load(path: Path) -> Diagnosis:
    """The diagnosis in the file; where it holds none, which file of several that is."""
    try:
        return Diagnosis.load(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def _bars(given: list[str] | None, flag: str) -> dict[str, float]:
    """NAME=VALUE of a repeated flag."""
    bars = dict[str, float]()
    for text in given or []:
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        if not name.strip():
            raise InputError(f"expected {flag} NAME=VALUE, got {text!r}: give one such as {flag} head.mean_cosine=0.3")
        if name.strip() in bars:
            raise InputError(f"expected one {flag} of {name.strip()}, got two: the second would hide the first")
        bars[name.strip()] = number
    return bars


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


def _check_targets(*paths: Path | None, read: tuple[Path, ...] = ()) -> None:
    """Targets that cannot be written, or would replace a file that is to be `read`, are said before the work, not after it."""
    from uncone.atomic import writable

    targets = [writable(path) for path in paths if path is not None]
    if len(set(targets)) < len(targets):
        raise InputError(f"expected two files to write, got {targets[0].name} twice: the second would replace the first")
    for source in read:
        if source.resolve() in targets:
            raise InputError(
                f"expected another file to write than those to read, got {source}: it would be replaced; give another name"
            )


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on standard error, shown once the work has taken two seconds; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    tasks = dict[str, Any]()

    def update(what: str, done: int, total: int) -> None:
        if what not in tasks:
            for task in tasks.values():
                bar.update(task, visible=False)
            tasks[what] = bar.add_task(what, total=total or None)
        bar.update(tasks[what], completed=done)

    # A timer, because a single step that tells nothing meanwhile may take longer than that.
    starting = threading.Timer(PROGRESS_AFTER_S, bar.start)
    starting.daemon = True
    starting.start()
    try:
        yield update
    finally:
        starting.cancel()
        starting.join()
        bar.stop()


if __name__ == "__main__":
    main()
