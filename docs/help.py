"""Write the `--help` of every command into docs/cli.md: `python docs/help.py`.

A section is a heading with the command and a block of text below it; a command without one gets its section at the end.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from uncone.questions import GROUPS, QUESTIONS

PAGE = Path(__file__).parent / "cli.md"
COMMANDS = [
    "uncone",
    *sorted(
        f"uncone {name}"
        for name in (
            *GROUPS,
            *filter(None, (" ".join(filter(str.islower, of[2].split())) for of in QUESTIONS.values())),
            "report",
            "doctor",
        )
    ),
]


def help_of(command: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    run = [sys.executable, "-m", *command.split(), "--help"]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    return "\n".join(line.rstrip() for line in done.stdout.strip().split("\n"))


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for command in COMMANDS:
        section = f"## `{command}`\n\n```text\n{help_of(command)}\n```\n"
        written = re.sub(
            rf"^## `{command}`\n\n```text\n.*?^```\n", lambda _, new=section: new, text, count=1, flags=re.M | re.S
        )
        text = written if f"## `{command}`\n" in text else f"{text.rstrip()}\n\n{section}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
