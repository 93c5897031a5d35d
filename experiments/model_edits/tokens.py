"""Damage one trained row of a real model at a time, set it anew by each method, and print the loss of each.

    python experiments/model_edits/tokens.py [--model DIR]

The model is stories260K, as experiments/stories260k/convert.py makes it. The text is what it writes itself: 24 samples of 200 tokens, seed 0.
The ten tokens of at least three characters that occur most in it are damaged one by one with normal noise as long as a row, which stands
for a row that was never trained. The loss is that of all tokens. The table goes to results/tokens.md.
"""

import argparse
import collections
import shutil
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from uncone import __version__
from uncone.edits.tokens import reinitialise_tokens

HERE = Path(__file__).parent
STORIES = HERE.parents[1] / "build/stories260K"
TABLE = "model.embed_tokens.weight"
METHODS = ("sub_tokens", "mean", "covariance")
MOST = 10


def written_text(model_dir: Path, samples: int = 24, length: int = 200) -> str:
    """What the model writes."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    start = torch.full((samples, 1), tokenizer.bos_token_id)
    torch.manual_seed(0)
    ids = model.generate(
        start, attention_mask=torch.ones_like(start), max_new_tokens=length, do_sample=True, top_k=0, pad_token_id=2
    )
    return "\n".join(tokenizer.batch_decode(ids, skip_special_tokens=True))


def frequent(model_dir: Path, text: str) -> list[tuple[int, str, int]]:
    """(id, token, how often) of the tokens to damage."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    counts = collections.Counter(tokenizer(text).input_ids)
    named = [(i, tokenizer.convert_ids_to_tokens(i), count) for i, count in counts.most_common()]
    return [(i, token, count) for i, token, count in named if len(token.strip("▁")) >= 3][:MOST]


def losses(folder: Path, token: int, text: Path) -> dict[str, float]:
    """The loss damaged, and set anew by each method."""
    file = folder / "m" / "model.safetensors"
    weights = load_file(file)
    original = weights[TABLE].clone()
    noise = torch.randn(original.shape[1], generator=torch.Generator().manual_seed(token))
    weights[TABLE][token] = noise * original.norm(dim=1).mean() / noise.norm()
    save_file(weights, file, metadata={"format": "pt"})
    found = {}
    for method in METHODS:
        loss = reinitialise_tokens(folder / "m", folder / f"{token}-{method}", [token], method=method, text=text).loss
        assert loss is not None
        found |= {"damaged": loss.before, method: loss.after}
    weights[TABLE] = original
    save_file(weights, file, metadata={"format": "pt"})
    return found


def main() -> None:
    """Run, print, and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=STORIES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(given.model, folder / "m")
        text = folder / "text.txt"
        text.write_text(written_text(folder / "m"), encoding="utf-8")
        whole = reinitialise_tokens(folder / "m", folder / "whole", [3], method="mean", text=text).loss
        assert whole is not None
        lines = [
            "| token | times | trained | damaged | sub_tokens | mean | covariance |",
            "|---|---|---|---|---|---|---|",
        ]
        found = []
        for i, token, count in frequent(folder / "m", text.read_text(encoding="utf-8")):
            found.append(losses(folder, i, text))
            cells = " | ".join(f"{found[-1][key]:.3f}" for key in ("damaged", *METHODS))
            lines.append(f"| `{token}` | {count} | {whole.before:.3f} | {cells} |")
    means = {key: sum(f[key] for f in found) / len(found) for key in ("damaged", *METHODS)}
    lines.append(f"| mean | | {whole.before:.3f} | {' | '.join(f'{value:.3f}' for value in means.values())} |")
    page = "\n".join(
        [
            "# Rows set anew",
            "",
            f"`python experiments/model_edits/tokens.py`, uncone {__version__}, torch {torch.__version__}, transformers {transformers.__version__}, CPU; "
            f"{given.model.name}, {whole.targets} targets of its own text.",
            "",
            "Mean loss in nats of a token: with the row as it was trained, with noise in its place, and with a new row by each method, without any "
            "training. *Times* is how often the token occurs.",
            "",
            *lines,
            "",
        ]
    )
    (HERE / "results" / "tokens.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
