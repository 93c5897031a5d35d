import os
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.regular import misspelt, open_unpacked
from uncone.saturation.tables.harness import is_results, read_json, read_results
from uncone.saturation.tables.tables import HOW, Table, of_memory, read_delimited, read_json_lines, read_parquet
from uncone.saturation.tables.tensorboard import is_events, read_events
from uncone.saturation.tables.trainer_state import NAME, read_states


def open_table(source: Any) -> Table:
    """The rows of a table (CSV, TSV, JSON lines, a JSON array of objects, Parquet), of results of lm-evaluation-harness
    (a folder), of event files of TensorBoard (a file or folder), of a `trainer_state.json` (or a folder with one), or
    of a table in memory: a pandas DataFrame, columns by name, or a list of rows."""
    if not isinstance(source, str | Path):
        return of_memory(source)
    path = Path(source)
    if not path.is_dir():
        return _of_file(path)
    every = sorted(Path(root, name) for root, _, names in os.walk(path) for name in names)
    for is_one, read in ((is_results, read_results), (is_events, read_events), (NAME.__eq__, read_states)):
        if files := [file for file in every if is_one(file.name)]:
            return read(files, path)
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
            return read_states([path], path)
        if "results" in content:
            return read_results([path], path)
    return read_json_lines(path) if start[:1] in (b"{", b"[") else read_delimited(path)
