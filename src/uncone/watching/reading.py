"""A run as its files have it: lines of a `Monitor`, and the history of a Trainer next to them."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.records.text import counted, plural, shortened
from uncone.regular import PACKED, json_object, misspelt, open_regular, open_unpacked
from uncone.watching.record import Reading, Run, RunWarning

SCHEMA = "uncone.run/1"
STATE = "trainer_state.json"
HOW = "give a file that uncone.Monitor wrote, a trainer_state.json, or a folder with them"
_LONGEST = 2**22  # bytes of a line
_LONGEST_NAME, _MOST_NOTES = 200, 5
_LARGEST_STATE = 2**28
MOST_NAMES, MOST_POINTS, MOST_WARNINGS = 400, 600, 1000
_PASSED_OVER = ("_runtime", "_per_second", "_time", "_flos", "epoch", "step", "num_tokens")
_LARGEST_STEP, _FAR = 2**53, 1e290
_ENDS = (".jsonl", *(f".jsonl{packed}" for packed in PACKED))


@dataclass(slots=True)
class _Series:
    """Of a long run every second, fourth, ... point is kept, and the last."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    stride: int = 1
    until: int = 1  # points until the next that is kept, counting it
    last: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        self.last = step, value
        self.until -= 1
        if self.until:
            return
        self.until = self.stride
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > MOST_POINTS:
            self.stride *= 2
            self.steps, self.values = self.steps[::2], self.values[::2]
            self.until = self.stride

    def cut(self, step: int) -> None:
        """Forget what was read at `step` and later: a resumed run trains it again."""
        kept = bisect_left(self.steps, step)
        self.steps, self.values, self.last = self.steps[:kept], self.values[:kept], None
        self.until = 1

    def reading(self, name: str) -> Reading:
        rest = [self.last] if self.last and self.last[0] > (self.steps or [-1])[-1] else []
        steps, values = (*self.steps, *(step for step, _ in rest)), (*self.values, *(value for _, value in rest))
        return Reading(name, steps, values)


@dataclass
class _Lines:
    """What a run's lines add up to."""

    model: str = ""
    every: int | None = None
    series: dict[str, _Series] = field(default_factory=dict)
    warnings: list[RunWarning] = field(default_factory=list)
    times: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=20))
    records: int = 0
    step: int = -1
    torn: int = 0  # lines that could not be read
    torn_at: list[int] = field(default_factory=list)  # the first of them
    torn_last: int = 0
    odd: int = 0  # numbers that are not finite
    unnamed: int = 0  # readings beyond the most names
    resumed: deque[int] = field(default_factory=lambda: deque(maxlen=3))
    notes: list[str] = field(default_factory=list)

    def record(self, step: int, line: Mapping[str, Any]) -> None:
        if step <= self.step:
            self.resumed.append(step)
            for series in self.series.values():
                series.cut(step)
            self.warnings = [one for one in self.warnings if one.step < step]
            self.times.clear()
        self.step, self.records = step, self.records + 1
        time = _number(line.get("time"))
        if time is not None:
            self.times.append((step, time))
        known = self.series.get
        for name, value in line.items():
            if (old := known(name)) is not None and type(value) is float and -_FAR < value < _FAR:
                old.add(step, value)  # nearly all are
            elif name not in ("step", "time"):
                self.number(step, name, value)

    def tear(self, place: int, text: str = "?") -> None:
        if text:
            self.torn, self.torn_last = self.torn + 1, place
            self.torn_at = [*self.torn_at, place][:3]

    def number(self, step: int, name: str, value: Any) -> None:
        number = _number(value)
        if number is None:
            self.odd += value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        elif name in self.series or (len(self.series) < MOST_NAMES and len(name) <= _LONGEST_NAME):
            self.series.setdefault(name, _Series()).add(step, number)
        else:
            self.unnamed += 1

    def run(self, name: str, file: str) -> Run:
        readings = [series.reading(name) for name, series in self.series.items() if series.last or series.steps]
        (a, before), (b, after) = (self.times[0], self.times[-1]) if self.times else ((0, 0.0), (0, 0.0))
        speed = _number((b - a) / (after - before)) if after > before else None
        last = self.times[-1][1] if self.times else None
        steps = [step for one in readings for step in one.steps]
        return Run(
            name=name,
            file=file,
            model=self.model,
            every=self.every,
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
            records=self.records,
            steps_per_second=speed,
            last_time=last,
            readings=tuple(readings),
            warnings=tuple(self.warnings),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        yield from self.notes
        if self.resumed:
            shown = ", ".join(f"{step:,}" for step in self.resumed)
            why = "as a resumed run repeats them"
            yield f"The run went back to step {shown}: earlier records from there on are left out, {why}"
        if self.torn:
            where = ", ".join(map(str, self.torn_at[: self.torn])) + ("" if self.torn < 4 else ", …")
            yield f"{counted(self.torn, 'line')} could not be read (line {where}): a stop or a full disk cut them short"
        if self.odd:
            yield f"{counted(self.odd, 'number')} {plural(self.odd, 'was', 'were')} not finite and left out"
        if self.unnamed:
            names = f"{MOST_NAMES} names, or whose names are longer than {_LONGEST_NAME} letters"
            yield f"readings beyond the first {names}, were left out"


def read_run(path: Path) -> list[Run]:
    """The runs of a file or of a folder. InputError: no run is there."""
    if not path.is_dir():
        return [_of_file(path)]
    files = sorted(one for one in path.iterdir() if one.name.endswith(_ENDS) and one.is_file() and is_run(one))
    states = [path / STATE, *sorted(path.glob(f"checkpoint-*/{STATE}"), key=lambda one: one.stat().st_mtime)]
    state = next((one for one in (states[0], *states[:0:-1]) if one.is_file()), None)
    if not files and state is None:
        raise InputError(f"expected a run's file or a {STATE} in {path}, got neither: {HOW}")
    name = path.resolve().name
    if not files and state is not None:
        return [_of_state(state, name)]
    runs = [_of_lines(file, name if len(files) == 1 else f"{name}/{_stem(file)}") for file in files]
    if state is not None and len(runs) == 1:
        runs = [_joined(runs[0], _of_state(state, name))]
    return runs


def is_run(path: Path) -> bool:
    """Whether a `Monitor` wrote the first line, or the file has the name of a Trainer's state."""
    if path.name == STATE:
        return True
    with suppress(InputError, OSError), open_unpacked(path, how=HOW) as file:
        first = json_object(file.readline(_LONGEST).decode("utf-8", "replace"))
        return first is not None and first.get("schema") == SCHEMA
    return False


def _of_file(path: Path) -> Run:
    if not path.exists():
        raise InputError(f"cannot read {path}: no such file: {misspelt(path)}{HOW}")
    if path.suffix == ".json":
        return _of_state(path, path.resolve().parent.name if path.name == STATE else path.stem)
    return _of_lines(path, _stem(path))


def _stem(path: Path) -> str:
    return path.stem.removesuffix(".jsonl") if path.suffix in PACKED else path.stem


def _of_lines(path: Path, name: str) -> Run:
    found, last = _Lines(), 0
    for place, text in _texts(path):
        line, last = json_object(text), place
        if place == 1 and (line is None or line.get("schema") != SCHEMA):
            got = "an empty line" if not text.strip() else shortened(text, 60)
            raise InputError(f"expected a first line with the schema {SCHEMA!r} in {path}, got {got}: {HOW}")
        if line is None:
            found.tear(place, text.strip())
        elif "schema" in line:
            _begin(found, line, place)
        else:
            _take(found, line, place)
    if not last:
        raise InputError(f"expected a run in {path}, got an empty file: wait for its first record, or {HOW}")
    if found.torn and found.torn_last == last:
        found.torn -= 1
        found.notes.append("the last line is incomplete: it is still being written, or the run stopped there")
    return found.run(name, path.name)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers. Bytes that are not UTF-8, or too long a line, give a line that cannot be read."""
    with open_unpacked(path, how=HOW) as file:
        place = 0
        while line := file.readline(_LONGEST):
            place += 1
            text = line.decode("utf-8", "replace")
            while not line.endswith(b"\n") and (line := file.readline(_LONGEST)):
                text = "?"
            yield place, text


def _begin(found: _Lines, line: Mapping[str, Any], place: int) -> None:
    model, every = str(line.get("model", ""))[:200], line.get("every")
    if place > 1 and model != found.model and len(found.notes) < _MOST_NOTES:
        found.notes.append(f"line {place} begins another model ({shortened(model)}): two runs wrote to one file")
    found.model = model
    found.every = (
        every if isinstance(every, int) and not isinstance(every, bool) and 0 < every < _LARGEST_STEP else None
    )


def _take(found: _Lines, line: Mapping[str, Any], place: int) -> None:
    step, warning = line.get("step"), line.get("warning")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < _LARGEST_STEP:
        found.tear(place)
    elif isinstance(warning, Mapping):
        words = (str(warning.get(key, ""))[:500] for key in ("rule", "name", "text"))
        if len(found.warnings) < MOST_WARNINGS:
            found.warnings.append(RunWarning(step, *words))
    else:
        found.record(step, line)


def _of_state(path: Path, name: str) -> Run:
    with open_regular(path, how=HOW) as file:
        content = file.read(_LARGEST_STATE + 1)
    if len(content) > _LARGEST_STATE:
        raise InputError(f"expected at most {_LARGEST_STATE} bytes in {path}, got more: {HOW}")
    state = json_object(content.decode("utf-8", "replace"))
    history = None if state is None else state.get("log_history")
    if not isinstance(history, list):
        raise InputError(f"expected a log_history in {path}, got none: {HOW}")
    found = _Lines()
    entries: Iterable[Any] = (one for one in history if isinstance(one, dict) and isinstance(one.get("step"), int))
    for entry in entries:
        numbers = {key: value for key, value in entry.items() if not key.endswith(_PASSED_OVER)}
        if entry["step"] == found.step:  # an evaluation of the same step
            for key, value in numbers.items():
                found.number(entry["step"], key, value)
        elif 0 <= entry["step"] < _LARGEST_STEP:
            found.record(entry["step"], numbers)
    return found.run(name, path.name)


def _joined(run: Run, state: Run) -> Run:
    """What the Trainer logged too, after the monitor's own readings."""
    own = {one.name for one in run.readings}
    more = tuple(one for one in state.readings if one.name not in own)
    return replace(run, readings=(*run.readings, *more), notes=(*run.notes, *state.notes))


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        number = float(value)
        return number if abs(number) < _FAR else None
    return None
