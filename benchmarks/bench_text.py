"""`uncone diagnose --text` of a real model beside one forward pass of it with its head, each in a process of its own.

    python experiments/real_models/convert.py build/smollm2
    python benchmarks/bench_text.py build/smollm2 TEXT [--tokens 20000]

The pass has the attention of torch (sdpa), float32, and windows of 512 ids in batches of 8. Processor time leaves loading the libraries out.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

WINDOW, BATCH = 512, 8


def _forward(model: str, text: str, tokens: int) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, attn_implementation="sdpa", dtype=torch.float32).eval()
    ids = Tokenizer.from_file(str(Path(model, "tokenizer.json"))).encode(Path(text).read_text()).ids[:tokens]
    with torch.inference_mode():
        for windows in torch.tensor(ids[: len(ids) // WINDOW * WINDOW]).view(-1, WINDOW).split(BATCH):
            loaded(windows)
        if rest := ids[len(ids) // WINDOW * WINDOW :]:
            loaded(torch.tensor([rest]))


def _diagnose(model: str, text: str, tokens: int) -> None:
    import uncone

    uncone.diagnose(model, text=text, tokens=tokens)


def _measured(which: str, given: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, given.model, given.text, "--tokens", str(given.tokens), "--only", which]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--only", choices=("forward", "diagnose"))
    given = parser.parse_args()
    if given.only:
        import torch  # noqa: F401
        import transformers  # noqa: F401

        begun = time.process_time()
        {"forward": _forward, "diagnose": _diagnose}[given.only](given.model, given.text, given.tokens)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": time.process_time() - begun, "peak": peak}))
        return
    passed, diagnosed = (_measured(which, given) for which in ("forward", "diagnose"))
    print("| what | processor time, s | peak, MiB |\n|---|---|---|")
    for name, one in (("one forward pass with its head", passed), ("uncone diagnose --text", diagnosed)):
        print(f"| {name} | {one['seconds']:.0f} | {one['peak']:.0f} |")
    times, size = diagnosed["seconds"] / passed["seconds"], diagnosed["peak"] / passed["peak"]
    print(f"| ratio | {times:.2f} | {size:.2f} |")


if __name__ == "__main__":
    main()
