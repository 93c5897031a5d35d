"""The small language models that are asked: states on a text, and their head; made once and kept in build/."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
WORK = ROOT / "build/bottleneck"
TOKENS = 20_000


def states(name: str) -> Any:
    """Of one of the subjects of experiments/saturation/bottleneck.py: stories260K, and the models of the example."""
    from uncone.model.last_states import states_of

    folder = str(ROOT / "experiments/saturation")
    sys.path.insert(0, folder)
    try:
        subjects = __import__("bottleneck").SUBJECTS
    finally:
        sys.path.remove(folder)
    WORK.mkdir(parents=True, exist_ok=True)
    model, texts = subjects[name](WORK)
    return states_of(model, texts, most=TOKENS)
