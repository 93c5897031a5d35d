"""A small fixed diagnosis, made without randomness or tensors, and the hostile strings that reports survive."""

import array
import base64
import math
import sys
from dataclasses import replace
from functools import partial

from uncone.diagnosis.record import Diagnosis, Subject
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Picture, Spectrum

HOSTILE = (
    "<script>document.title='x'</script>",
    "<img src=x onerror=\"document.title='x'\">",
    '\'" onmouseover=alert(1) x="',
    "]]></style></svg><b>bold</b>",
    "\u202egnp.exe",
    "nul\x00 esc\x1b[31m bell\x07 newline\n",
    "[red]hot[/red] [/] [unused1] :smile:",
    "&amp; &lt;i&gt; &#x3c;",
    "zero\u200bwidth\ufeff\U000e0041 lone\ud800 \ufffe",
)
NAMES = ("ids between", "reserved tokens", "last tenth of ids")


def coordinates(points: list[tuple[float, float, float]]) -> tuple[str, float]:
    """Points as a `Picture` stores them: base64 of int16, and the scale."""
    scale = max(abs(value) for point in points for value in point) / 32767
    values = array.array("h", [round(value / scale) for point in points for value in point])
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode("ascii"), scale


def make_picture(n: int = 60, labels: tuple[str | None, ...] | None = None, shift: float = 2.0) -> Picture:
    """`n` points on a spiral, moved away from the origin by `shift` for the raw panel: a cone."""
    radii = [math.sqrt(i / n) for i in range(n)]
    spiral = [(r * math.cos(2.4 * i), r * math.sin(2.4 * i), 0.1 * (i % 3)) for i, r in enumerate(radii)]
    raw, raw_scale = coordinates([(x + shift, y, z) for x, y, z in spiral])
    centered, centered_scale = coordinates(spiral)
    groups = tuple(1 if i % 12 == 5 else 2 if i >= 0.9 * n else 0 for i in range(n))
    tokens = tuple(f"token{i}" if i % 5 else None for i in range(n)) if labels is None else labels
    return Picture(n, tuple(range(n)), tokens, groups, NAMES, raw, raw_scale, centered, centered_scale)


def make_groups() -> Groups:
    """Six bins, the first with reserved rows, the last nearest to them, one without any reading."""
    bins = list[Group]()
    for k, start in enumerate(range(0, 6000, 1000)):
        cosines = (None, None) if k == 3 else (0.02 + 0.01 * k * k, -0.05 + 0.02 * k * k)
        readings = (1000, 0, 1.2 - 0.1 * k, 0.1, *cosines, 5 if k == 0 else 0)
        bins.append(Group(f"ids {start} to {start + 999}", start, start + 1000, *readings))
    reserved = Group("5 reserved tokens", 0, 0, 5, 0, 0.45, 0.01, 0.822, None, 5)
    return Groups(1000, "5 reserved tokens ([unused0] to [unused4])", reserved, tuple(bins))


def make_measurements() -> tuple[Measurement, ...]:
    """One measurement of every kind: plain, near a limit, with an interval, undefined, with warnings and details."""
    of = partial(Measurement, n=6000, d=8)
    cosine = {"details": {"zero_rows": 0}, "definition": "Mean cosine of two rows.", "centered": False}
    share = {"definition": "(P - 1) / (D - 1).", "centered": True}
    shares = {"dimensions": [3, 1], "shares": tuple(k / 40 for k in range(40)), "exact": True, "map": {"a": None}}
    rogue = {"warnings": ("few rows",), "definition": "Largest share.", "centered": False, "details": shares}
    return (
        of("mean_cosine", 0.0181, "", (-1.0, 1.0), "lower", 0.0, (0.0175, 0.0187), **cosine),
        of("isoscore", 0.9996, "", (0.0, 1.0), "higher", 0.9875, **share),
        of("effective_rank", 7.998, "", (1.0, 8.0), "higher", 7.9999999999, centered=True),
        of("two_nn", None, "more than half of the rows have a duplicate", (0.0, None), "neither"),
        of("rogue_dimensions", 2.5e-05, "", (None, None), "lower", 0.125, **rogue),
    )


def make_findings() -> tuple[Finding, ...]:
    """One finding of each level, not sorted."""
    tail, shared = "Rare rows lean toward the reserved rows.", "The rows of the head share a direction."
    near = ("ids 5,000 to 5,999: 0.45", "mean 0.018")
    repair = {"repair": "Re-initialise them.", "command": "uncone repair-tokens example-model repaired-model"}
    rests = {"repair": "Standardise the features.", "measures": ("rogue_dimensions",), "extent": 0.25}
    return (
        Finding("no_defect", "healthy", "No defect was found elsewhere."),
        Finding("degenerate_tail", "severe", tail, near, **repair, measures=("rare.cosine_to_reserved",), extent=0.3),
        Finding("common_direction_of_the_head", "no_effect", shared, ("mean cosine 0.61",)),
        Finding("norm_id_coupling", "structure", "Rows with higher ids are shorter.", ("Spearman -0.40",), ""),
        Finding("zero_rows", "note", "1 row is zero.", ("first: 0",), "Nothing to do.", extent=1 / 6000),
        Finding("rogue_dimensions", "warning", "A few dimensions dominate.", **rests),
    )


def make_subject(name: str = "input") -> Subject:
    """A subject with everything in it; a `head` also has readings without effect and rows left out."""
    isotropic = tuple(1.1 - 0.025 * k for k in range(8))
    centered = tuple(2.0 / (k + 1) for k in range(8))
    norms = Norms(0.4, 1.05, 1.6, (0.4, 0.8, 0.9, 1.0, 1.1, 1.2, 1.6), (500, 400, 1200, 2000, 1500, 400))
    drawn = (make_groups(), Spectrum((9.0, *centered[1:]), centered, isotropic), norms, make_picture())
    said = (make_measurements(), make_findings())
    subject = Subject(name, f"model#{name}", 6000, 8, "float32", *said, *drawn)
    subject = replace(subject, notes=("Token strings were read from tokenizer.json.",))
    if name != "head":
        return subject
    cosine = Measurement("mean_cosine", 0.613, "", (-1.0, 1.0), "lower", 0.0, None, 6000, 8, False)
    return replace(subject, without_effect=(cosine,), left_out=3)


def make_empty() -> Subject:
    """A subject of no rows, with nothing in it."""
    return Subject("input", "model#input", 0, 8, "float32", (), (), None, None, None, None)


def make_diagnosis() -> Diagnosis:
    """Two subjects, notes and versions: the record behind `gold.html`."""
    verdict = "The input token table is severely degenerate: its tail is degenerate."
    subjects, versions = (make_subject("input"), make_subject("head")), {"uncone": "0.1.0", "torch": "2.13.0"}
    return Diagnosis("example-model", verdict, subjects, ("No text was given.",), versions)


def make_hostile(text: str) -> Diagnosis:
    """The example with `text` in every field that holds words; the tokens outermost in the picture are `text` too."""
    subject = make_subject("head")
    labels = tuple(text if i % 2 else None for i in range(60))
    picture = replace(make_picture(labels=labels), group_names=(text, text + " reserved", text + "!"))
    measured = Measurement(text, 0.5, "", (0.0, 1.0), "higher", 1.0, n=9, d=9, warnings=(text,), definition=text)
    measured, undefined = replace(measured, details={text: text, "list": [text]}), Measurement(text, None, text)
    groups = replace(make_groups(), reserved=text, reserved_group=replace(make_groups().bins[0], name=text))
    finding = Finding(text, "severe", text, (text,), text)
    subject = replace(subject, name=text, source=text, dtype=text, notes=(text,), picture=picture, groups=groups)
    subject = replace(subject, measurements=(measured, undefined), without_effect=(measured,), findings=(finding,))
    return Diagnosis(text, text, (subject,), (text,), {text: text})
