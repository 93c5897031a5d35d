"""Train the cells of a config that have no result yet, those of the first priority first.

python experiments/translation/mt_fill.py multi30k.toml --data FOLDER [--jobs 2] [--minutes 120] [--list]
python experiments/translation/mt_fill.py multi30k.toml --pause       # and --go; --stop ends it, and cells go on later
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "rare_tokens"))
import fill
from mt_train import ARMS, HERE, Cell, parser

from uncone.errors import InputError


def cells(config: dict[str, Any]) -> Iterator[Any]:
    for cell in fill.cells(config, Cell, ARMS):
        yield replace(cell, batch=config["training"]["batch"])


if __name__ == "__main__":
    try:
        fill.main(made=parser(), find=cells, script=HERE / "mt_train.py")
    except InputError as error:
        sys.exit(str(error))
