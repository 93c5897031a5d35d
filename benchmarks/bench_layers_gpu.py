"""Statistics of all layers on a GPU beside the bare forward pass: random encoder and decoder of usual sizes, float32 and bfloat16.

python benchmarks/bench_layers_gpu.py           # results/layers_gpu.md
python benchmarks/bench_layers_gpu.py --tiny    # small models on the CPU, to try the script itself; keeps nothing
"""

import argparse
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from measured import HERE
from tokenizers import Tokenizer, models, pre_tokenizers

from uncone.model import hidden_states
from uncone.model.head_map import undisturbed
from uncone.model.hidden_states import hidden_states_of
from uncone.model.layered_model import LayeredModel, open_layered
from uncone.model.text_sources import open_texts

V = 30_000


def encoder(tiny: bool) -> transformers.PreTrainedModel:
    """The size of BERT base."""
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return transformers.BertModel(transformers.BertConfig(vocab_size=V, **(small if tiny else {})))


def decoder(tiny: bool) -> transformers.PreTrainedModel:
    """A Llama of 1.1 thousand million parameters, as TinyLlama."""
    heads, small = (
        {"num_attention_heads": 32, "num_key_value_heads": 4},
        {"num_attention_heads": 4, "num_key_value_heads": 4},
    )
    sizes = (64, 2, 128, small) if tiny else (2048, 22, 5632, heads)
    d, layers, inner, attention = sizes
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=d, num_hidden_layers=layers, intermediate_size=inner, **attention
    )
    return transformers.LlamaForCausalLM(config)


def saved(model: transformers.PreTrainedModel, path: Path) -> Path:
    model.save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(V)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def text(path: Path, tokens: int) -> Path:
    """Lines of 5 to 200 tokens, frequencies as 1 / rank."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, V + 1)
    lines, left = [], tokens
    while left > 0:
        length = int(random.integers(5, 200))
        lines.append(" ".join(f"w{i}" for i in random.choice(V, length, p=shares / shares.sum())))
        left -= length
    path.write_text("\n".join(lines) + "\n")
    return path


def seconds(work: object) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()  # type: ignore[operator]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def row(name: str, path: Path, source: Path, device: str, dtype: str, most: int, repeats: int) -> str:
    """Forward pass and sums of the same batches, in turn."""
    model = open_layered(path, device=device, dtype=dtype)
    seen, states = list[tuple[torch.Tensor, torch.Tensor]](), LayeredModel.states

    def noted(self: LayeredModel, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        seen.append((ids, mask))
        return states(self, ids, mask)

    def forward() -> None:
        with undisturbed(model.model):
            for ids, mask in seen:
                model.model(input_ids=ids, attention_mask=mask, **({"logits_to_keep": 1} if model.causal else {}))

    def ours() -> None:
        hidden_states_of(path, open_texts(source), most=most, width=None)

    opened = hidden_states.open_layered
    hidden_states.open_layered = lambda *_, **__: model
    try:
        LayeredModel.states = noted
        ours()
        LayeredModel.states = states
        forward()
        taken = [(seconds(forward), seconds(ours)) for _ in range(repeats)]
    finally:
        hidden_states.open_layered, LayeredModel.states = opened, states
    bare, whole = (statistics.median(times) for times in zip(*taken, strict=True))
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    ratio = statistics.median(b / a for a, b in taken)
    return f"| {name}, {dtype} | {bare:.3g} | {whole:.3g} | {ratio:.2f} | {peak:,.0f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    if not chosen.tiny and not torch.cuda.is_available():
        raise SystemExit("expected a GPU, got none: pass --tiny to try the script on the CPU")
    device, most, repeats = ("cpu", 5_000, 2) if chosen.tiny else ("cuda", chosen.tokens, chosen.repeats)
    lines = [
        f"# Hidden states of all layers on a GPU, {most:,} tokens",
        "",
        f"`{' '.join(['python benchmarks/bench_layers_gpu.py', *sys.argv[1:]])}`",
        "",
        "| model | forward s | all layers summed s | x forward | most memory MiB |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        source = text(Path(folder) / "text.txt", most + 1000)
        for name, make in (("encoder, 12 layers of 768", encoder), ("decoder, 22 layers of 2,048", decoder)):
            path = saved(make(chosen.tiny), Path(folder) / name[:7])
            lines += [row(name, path, source, device, dtype, most, repeats) for dtype in ("float32", "bfloat16")]
    where = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    lines += ["", f"{where}, torch {torch.__version__}. Medians of {repeats} runs in turn; the model is loaded before."]
    print("\n".join(lines))
    if not chosen.tiny:
        (HERE / "results" / "layers_gpu.md").write_text("\n".join(lines) + "\n")
