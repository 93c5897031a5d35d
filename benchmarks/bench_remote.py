"""The head of a model of 20 shards over HTTP: traffic, memory of the whole process, and the same bytes as of the local file.

python benchmarks/bench_remote.py
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

V, D, SHARDS = 128_256, 2048, 20


def files() -> dict[str, bytes]:
    from uncone.rows.safetensors import to_bytes

    random, made, placed = np.random.default_rng(0), dict[str, bytes](), dict[str, str]()
    for k in range(SHARDS):
        tensors = {f"model.layers.{k}.{i}.weight": np.zeros((64, 64), np.float16) for i in range(9)}
        if k == SHARDS - 1:
            head = np.empty((V, D), np.float16)
            for at in range(0, V, 8192):
                head[at : at + 8192] = random.standard_normal((len(head[at : at + 8192]), D), np.float32) + 0.1
            tensors["lm_head.weight"] = head
        if k == 0:
            tensors["model.embed_tokens.weight"] = np.ones((V, 4), np.float16)
        name = f"model-{k + 1:05}-of-{SHARDS:05}.safetensors"
        made[f"m/{name}"], placed = to_bytes(tensors, {}), placed | dict.fromkeys(tensors, name)
    made["m/model.safetensors.index.json"] = json.dumps({"weight_map": placed}).encode()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V, "hidden_size": D}
    made["m/config.json"] = json.dumps(config | {"tie_word_embeddings": False, "embedding_size": 4}).encode()
    return made


def read(spec: str) -> None:
    """Print what the sums over a head are, and what they took."""
    import uncone

    began = time.perf_counter()
    sums, digest = uncone.Moments.of(uncone.open_rows(spec)).tensors(), hashlib.sha256()
    for name in sorted(sums):
        digest.update(np.ascontiguousarray(sums[name]).data)
    # what getrusage tells includes that of the process which started this one
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"seconds": time.perf_counter() - began, "MiB": peak, "digest": digest.hexdigest()}))


def asked(spec: str) -> dict[str, float | str]:
    done = subprocess.run([sys.executable, __file__, spec], capture_output=True, text=True, check=True)
    found: dict[str, float | str] = json.loads(done.stdout)
    return found


def main() -> None:
    from tests.server import serving

    made, tensor = files(), V * D * 2
    with tempfile.TemporaryDirectory() as folder:
        for name, content in made.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        here = asked(f"{folder}/m#lm_head.weight")
    with serving(made) as server:
        there = asked(f"{server.url}/m#head")
        requests, sent = len(server.asked), server.sent
    assert here["digest"] == there["digest"], "the sums differ"
    lines = ["# The head of a model of 20 shards over HTTP", "", "`python benchmarks/bench_remote.py`", ""]
    lines += [f"{V:,} x {D:,} of float16, {tensor / 1e6:,.0f} MB; a server on the same machine.", ""]
    lines += [
        "| read | seconds | memory of the whole process, MiB | traffic, of the tensor | requests |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| from the file | {here['seconds']:.2f} | {here['MiB']:.0f} | | |"]
    lines += [f"| over HTTP | {there['seconds']:.2f} | {there['MiB']:.0f} | {sent / tensor:.4f} | {requests} |"]
    text = "\n".join([*lines, "", "All sums are equal to the last byte."]) + "\n"
    print(text)
    (HERE / "results" / "remote.md").write_text(text)


if __name__ == "__main__":
    read(sys.argv[1]) if len(sys.argv) > 1 else main()
