"""Write the descriptions of the measures into docs/measures.md: python docs/measures.py"""

from pathlib import Path

from uncone.measure import DESCRIPTIONS
from uncone.records.measures import MeasureDescription

PAGE = Path(__file__).with_suffix(".md")
FIRST = "<!-- From here to the next such mark this page is made from the code: python docs/measures.py -->"
LAST = "<!-- From here on it is written by hand. -->"


def sections() -> str:
    """One section for each measure, under the question that it answers."""
    parts = []
    for question, descriptions in DESCRIPTIONS.items():
        parts += [f"### {question}", *map(_section, descriptions)]
    return "\n\n".join(parts)


def _section(description: MeasureDescription) -> str:
    facts = "\n".join(f"- {fact}" for fact in description.facts)
    return f"#### `{description.name}`\n\n{description.says}\n\n```text\n{description.formula}\n```\n\n{facts}"


def main() -> None:
    """Write the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(FIRST)
    after = rest.partition(LAST)[2]
    PAGE.write_text(f"{before}{FIRST}\n\n{sections()}\n\n{LAST}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
