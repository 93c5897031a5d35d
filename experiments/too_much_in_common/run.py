"""Tables 1, 2 and 3 and the pictures of "Too Much in Common" (Bis et al. 2021) for any models, beside the paper's figures.

    python experiments/too_much_in_common/run.py --models NAME=DIR ... --data DIR [--counts FILE] [--planted] [--pictures]

A model is a directory (or any spec of its token table, such as word vectors); NAME= gives it the name of a model of the paper,
or another. Each model's numbers are kept in results/NAME.json and taken from there while its table, the word sets, the counts
and the format are the same; --again computes them anew. The tables are printed, and with --readme written into README.md.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

FORMAT = 6
"""Of a model's numbers. Raise it when what is measured changes: kept results of another format are computed anew."""
FORMAT_OF_PLANTED = 2
NO_MODELS = ("planted.json", "clusters.json")
BEGIN, END = "<!-- tables: written by run.py --readme -->", "<!-- end of tables -->"


def main(arguments: list[str] | None = None) -> None:
    chosen = _parse(arguments)
    out = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    models = [_model(spec, chosen, out) for spec in chosen.models]
    if chosen.planted:
        _planted(out, again=chosen.again)
    kept = [json.loads(file.read_text()) for file in sorted(out.glob("*.json")) if file.name not in NO_MODELS]
    shown = kept if chosen.readme else models
    planted = out / "planted.json"
    from tables import all_tables

    text = all_tables(
        shown,
        json.loads(planted.read_text())["rows"] if planted.is_file() and (chosen.planted or chosen.readme) else None,
    )
    print(text)
    if chosen.pictures and shown:
        from pictures import draw_norms

        chosen.pictures.mkdir(parents=True, exist_ok=True)
        print(f"wrote {', '.join(draw_norms(shown, chosen.pictures))}", file=sys.stderr)
    if chosen.readme:
        _write_readme(text)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--models", nargs="+", default=[], metavar="[NAME=]DIR", help="token tables to measure")
    parser.add_argument("--data", type=Path, help="directory of the word-similarity sets; without it no Tables 2 and 3")
    parser.add_argument("--counts", type=Path, help="token counts of the models' vocabulary, for the Zipfian repairs")
    parser.add_argument("--planted", action="store_true", help="matrices with the paper's means and norms, too")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="DIR", help="where results are kept")
    parser.add_argument(
        "--pictures",
        type=Path,
        nargs="?",
        const=HERE / "pictures",
        metavar="DIR",
        help="draw Figures 1, 3, 5 and 6 (needs matplotlib)",
    )
    parser.add_argument("--again", action="store_true", help="compute anew what is kept")
    parser.add_argument(
        "--no-oracle", action="store_true", help="without the authors' program, which holds the whole table in memory"
    )
    parser.add_argument("--readme", action="store_true", help="write the tables of all kept results into README.md")
    chosen = parser.parse_args(arguments)
    if not chosen.models and not chosen.planted and not chosen.readme:
        parser.error("name models with --models, or ask for --planted or --readme")
    return chosen


def _model(spec: str, chosen: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The numbers of one model, kept or computed."""
    from geometry import table_1
    from pictures import draw, norm_densities

    from uncone.transforms import repair_named
    from uncone.transforms.fitting import summarise

    name, source = _named(spec)
    rows = _rows(source)
    began = time.perf_counter()
    moments, fitted, _ = summarise(rows, unit_first=True)
    options = _options(chosen)
    file = out / f"{name}.json"
    found = _kept(file, fitted.sha256, options) if not chosen.again else None
    if found is None:
        found = {
            "format": FORMAT,
            "name": name,
            "n": rows.shape[0],
            "d": rows.shape[1],
            "sha256": fitted.sha256,
            "options": options,
            "table_1": table_1(rows, moments, oracle=not chosen.no_oracle),
            "norms": norm_densities(rows, repair_named("center", d=rows.shape[1]).fit(moments).transform(rows)),
            "words": _words(source, rows, moments, chosen) if chosen.data else None,
            "made_by": _made_by(),
            "seconds": time.perf_counter() - began,
        }
        _save(file, found)
    if chosen.pictures:
        chosen.pictures.mkdir(parents=True, exist_ok=True)
        print(f"wrote {', '.join(draw(name, rows, moments, chosen.pictures))}", file=sys.stderr)
    return found


def _named(spec: str) -> tuple[str, str]:
    name, equals, source = spec.partition("=")
    if not equals:
        name, source = Path(spec.split("#")[0]).name, spec
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise SystemExit(f"expected NAME=DIR with a name of letters, digits, - _ and ., got {spec!r}")
    return name, source


def _rows(source: str) -> Any:
    import uncone

    is_table = not Path(source).is_dir() or "#" in source
    return uncone.open_rows(source if is_table else f"{source}#input")


def _words(source: str, rows: Any, moments: Any, chosen: argparse.Namespace) -> dict[str, Any]:
    from words import fitted, similarity

    from uncone.evaluation.pairs import read_word_sets
    from uncone.evaluation.word_vocabulary import vocabulary_of
    from uncone.model.counts import read_counts

    sets = read_word_sets(chosen.data)
    directory = Path(source.split("#")[0])
    vocabulary = vocabulary_of(directory if directory.is_dir() else rows.labels)
    counts = None if chosen.counts is None else read_counts(chosen.counts, rows.shape[0], rows.labels).counts
    return similarity(rows, vocabulary, sets, fitted(rows, moments, counts))


def _options(chosen: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on beside the table: digests of the word sets and of the counts, and whether the oracle ran."""
    from uncone.evaluation.pairs import read_word_sets

    if chosen.counts is not None and not chosen.counts.is_file():
        raise SystemExit(f"expected a file of token counts, got {chosen.counts}: name one with --counts")
    sets = (
        None if chosen.data is None else repr([(one.name, one.pairs, one.gold) for one in read_word_sets(chosen.data)])
    )
    return {
        "data": None if sets is None else hashlib.sha256(sets.encode()).hexdigest(),
        "counts": None if chosen.counts is None else hashlib.sha256(chosen.counts.read_bytes()).hexdigest(),
        "oracle": not chosen.no_oracle,
    }


def _kept(file: Path, sha256: str | None, options: dict[str, Any]) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    kept: dict[str, Any] = json.loads(file.read_text())
    same = kept.get("format") == FORMAT and kept.get("sha256") == sha256 and kept.get("options") == options
    return kept if same else None


def _planted(out: Path, *, again: bool) -> None:
    from planted import all_rows

    file = out / "planted.json"
    kept = json.loads(file.read_text()) if file.is_file() and not again else {}
    done = kept.get("rows", {}) if kept.get("format") == FORMAT_OF_PLANTED else {}
    all_rows(done, lambda rows: _save(file, {"format": FORMAT_OF_PLANTED, "made_by": _made_by(), "rows": rows}))


def _save(file: Path, found: dict[str, Any]) -> None:
    from uncone.atomic import write_text

    write_text(file, json.dumps(found, indent=1) + "\n")


def _made_by() -> dict[str, str]:
    import numpy
    import sklearn
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    ).stdout
    return {
        "commit": commit.strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": platform.machine(),
    }


def _write_readme(text: str) -> None:
    file = HERE / "README.md"
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    file.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    from uncone.errors import UnconeError

    try:
        main()
    except UnconeError as error:
        sys.exit(str(error))
