"""The format of a file or folder is found by its names and its first bytes."""

from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.regular import misspelt, open_unpacked
from uncone.saturation.tables.harness import read_json, read_results, results_in
from uncone.saturation.tables.tables import HOW, Table, of_memory, read_delimited, read_json_lines, read_parquet
from uncone.saturation.tables.tensorboard import events_in, is_events, read_events
from uncone.saturation.tables.trainer_state import NAME, read_states, states_in


def open_table(source: Any) -> Table:
    """The rows of a table (CSV, TSV, JSON lines, a JSON array of objects, Parquet), of results of lm-evaluation-harness
    (a folder), of event files of TensorBoard (a file or folder), of a `trainer_state.json` (or a folder with one), or
    of a table in memory: a pandas DataFrame, columns by name, or a list of rows."""
    if not isinstance(source, str | Path):
        return of_memory(source)
    path = Path(source)
    if not path.is_dir():
        return _of_file(path)
    if files := results_in(path):
        return read_results(files, str(path))
    if files := events_in(path):
        return read_events(files, path)
    if files := states_in(path):
        return read_states(files, str(path))
    what = f"results*.json of lm-evaluation-harness, event files of TensorBoard or a {NAME}"
    raise InputError(f"expected {what} in {path}, got none: {HOW}")


def _of_file(path: Path) -> Table:
    if is_events(path.name):
        return read_events([path], path.parent)
    if path.suffix == ".parquet":
        return read_parquet(path)
    if not path.exists():
        raise InputError(f"cannot read {path}: no such file: {misspelt(path)}{HOW}")
    with open_unpacked(path, how=HOW) as file:
        start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:4] == b"PAR1":
        return read_parquet(path)
    if path.suffix == ".json" and start[:1] == b"{":
        content = read_json(path)
        if "log_history" in content:
            return read_states([path], str(path))
        if "results" in content:
            return read_results([path], str(path))
    return read_json_lines(path) if start[:1] in (b"{", b"[") else read_delimited(path)
