"""The findings of a subject: the level in words, what it means, the evidence, and what to do."""

from collections.abc import Sequence

from uncone.records import Diagnosis, Finding, Subject
from uncone.records.text import title
from uncone.report.markup import element, escape, section

LEVELS = ("severe", "warning", "note", "healthy")  # worst first


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, worst first, otherwise in the record's order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def worst_level(findings: Sequence[Finding]) -> str:
    """The worst level among the findings; `note` where there is none, since nothing found is not a clean bill."""
    return min((finding.level for finding in findings), key=LEVELS.index, default="note")


def overall_level(diagnosis: Diagnosis) -> str | None:
    """The worst level of all subjects; None where nothing was found at all."""
    findings = [finding for subject in diagnosis.subjects for finding in subject.findings]
    return worst_level(findings) if findings else None


def badge(level: str) -> str:
    """The level as a word in its colour: the word carries the meaning, the colour only repeats it."""
    return element("span", escape(level.capitalize()), class_=f"badge {level}")


def cause_title(finding: Finding) -> str:
    """The cause for people; empty where the level says it already (`healthy`)."""
    return "" if finding.cause == finding.level else title(finding.cause)


def findings_section(subject: Subject, uid: str) -> str:
    """All findings of a subject as cards."""
    cards = "".join(_card(finding) for finding in worst_first(subject.findings))
    nothing = element("p", "No finding was drawn from these numbers.", class_="muted")
    return section(
        "Findings", element("div", cards, class_="findings") if cards else nothing, uid=f"{uid}-findings"
    )


def _card(finding: Finding) -> str:
    said = element("h4", badge(finding.level) + element("span", escape(cause_title(finding))))
    said += element("p", escape(finding.summary))
    if finding.evidence:
        said += element(
            "ul", "".join(element("li", escape(piece)) for piece in finding.evidence), class_="evidence"
        )
    advice = element("h5", "What to do") + element("p", escape(finding.repair)) if finding.repair else ""
    content = element("div", said) + (element("div", advice, class_="repair") if advice else "")
    return element("article", content, class_=f"finding {finding.level}")
