"""A small fixed diagnosis, made without randomness and without tensors, and the hostile strings that reports must survive."""

import array
import base64
import math
import sys
from dataclasses import replace

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
    spiral = [
        (math.sqrt(i / n) * math.cos(2.4 * i), math.sqrt(i / n) * math.sin(2.4 * i), 0.1 * (i % 3)) for i in range(n)
    ]
    raw, raw_scale = coordinates([(x + shift, y, z) for x, y, z in spiral])
    centered, centered_scale = coordinates(spiral)
    groups = tuple(1 if i % 12 == 5 else 2 if i >= 0.9 * n else 0 for i in range(n))
    tokens = tuple(f"token{i}" if i % 5 else None for i in range(n)) if labels is None else labels
    return Picture(n, tuple(range(n)), tokens, groups, NAMES, raw, raw_scale, centered, centered_scale)


def make_groups() -> Groups:
    """Six bins, the first with reserved rows, the last nearest to them, one without any reading."""
    bins = tuple(
        Group(
            f"ids {1000 * k} to {1000 * k + 999}",
            1000 * k,
            1000 * k + 1000,
            1000,
            0,
            1.2 - 0.1 * k,
            0.1,
            None if k == 3 else 0.02 + 0.01 * k * k,
            None if k == 3 else -0.05 + 0.02 * k * k,
            5 if k == 0 else 0,
        )
        for k in range(6)
    )
    reserved = Group("5 reserved tokens", 0, 0, 5, 0, 0.45, 0.01, 0.822, None, 5)
    return Groups(1000, "5 reserved tokens ([unused0] to [unused4])", reserved, bins)


def make_measurements() -> tuple[Measurement, ...]:
    """One measurement of every kind: plain, near a limit, with an interval, undefined, with warnings and details."""
    return (
        Measurement(
            "mean_cosine",
            0.0181,
            "",
            (-1.0, 1.0),
            "lower",
            0.0,
            (0.0175, 0.0187),
            6000,
            8,
            False,
            {"zero_rows": 0},
            (),
            "Mean cosine of two rows.",
        ),
        Measurement(
            "isoscore", 0.9996, "", (0.0, 1.0), "higher", 0.9875, None, 6000, 8, True, {}, (), "(P - 1) / (D - 1)."
        ),
        Measurement("effective_rank", 7.998, "", (1.0, 8.0), "higher", 7.9999999999, None, 6000, 8, True),
        Measurement(
            "two_nn", None, "more than half of the rows have a duplicate", (0.0, None), "neither", None, None, 6000, 8
        ),
        Measurement(
            "rogue_dimensions",
            2.5e-05,
            "",
            (None, None),
            "lower",
            0.125,
            None,
            6000,
            8,
            False,
            {"dimensions": [3, 1], "shares": tuple(k / 40 for k in range(40)), "exact": True, "map": {"a": None}},
            ("few rows",),
            "Largest share.",
        ),
    )


def make_findings() -> tuple[Finding, ...]:
    """One finding of each level, not sorted."""
    return (
        Finding("no_defect", "healthy", "No defect was found elsewhere."),
        Finding(
            "degenerate_tail",
            "severe",
            "Rare rows lean toward the reserved rows.",
            ("ids 5,000 to 5,999: 0.45", "mean 0.018"),
            "Re-initialise them.",
            "uncone repair-tokens example-model repaired-model",
            ("rare.cosine_to_reserved",),
            0.3,
        ),
        Finding(
            "common_direction_of_the_head",
            "no_effect",
            "The rows of the head share a direction.",
            ("mean cosine 0.61",),
        ),
        Finding("norm_id_coupling", "structure", "Rows with higher ids are shorter.", ("Spearman -0.40",), ""),
        Finding("zero_rows", "note", "1 row is zero.", ("first: 0",), "Nothing to do.", extent=1 / 6000),
        Finding(
            "rogue_dimensions",
            "warning",
            "A few dimensions dominate.",
            (),
            "Standardise the features.",
            measures=("rogue_dimensions",),
            extent=0.25,
        ),
    )


def make_subject(name: str = "input") -> Subject:
    """A subject with everything in it; a `head` also has readings without effect and rows left out."""
    isotropic = tuple(1.1 - 0.025 * k for k in range(8))
    centered = tuple(2.0 / (k + 1) for k in range(8))
    edges = (0.4, 0.8, 0.9, 1.0, 1.1, 1.2, 1.6)
    subject = Subject(
        name,
        f"model#{name}",
        6000,
        8,
        "float32",
        make_measurements(),
        make_findings(),
        make_groups(),
        Spectrum((9.0, *centered[1:]), centered, isotropic),
        Norms(0.4, 1.05, 1.6, edges, (500, 400, 1200, 2000, 1500, 400)),
        make_picture(),
        notes=("Token strings were read from tokenizer.json.",),
    )
    if name != "head":
        return subject
    return replace(
        subject,
        without_effect=(Measurement("mean_cosine", 0.613, "", (-1.0, 1.0), "lower", 0.0, None, 6000, 8, False),),
        left_out=3,
    )


def make_diagnosis() -> Diagnosis:
    """Two subjects, notes and versions: the record behind `gold.html`."""
    return Diagnosis(
        "example-model",
        "The input token table is severely degenerate: its tail is degenerate.",
        (make_subject("input"), make_subject("head")),
        ("No text was given.",),
        {"uncone": "0.1.0", "torch": "2.13.0"},
    )


def make_hostile(text: str) -> Diagnosis:
    """The example with `text` in every field that holds words; the tokens outermost in the picture are `text` too."""
    subject = make_subject("head")
    labels = tuple(text if i % 2 else None for i in range(60))
    picture = replace(make_picture(labels=labels), group_names=(text, text + " reserved", text + "!"))
    measured = Measurement(
        text, 0.5, "", (0.0, 1.0), "higher", 1.0, None, 9, 9, None, {text: text, "list": [text]}, (text,), text
    )
    undefined = Measurement(text, None, text)
    groups = replace(make_groups(), reserved=text, reserved_group=replace(make_groups().bins[0], name=text))
    subject = replace(
        subject,
        name=text,
        source=text,
        dtype=text,
        notes=(text,),
        picture=picture,
        groups=groups,
        measurements=(measured, undefined),
        without_effect=(measured,),
        findings=(Finding(text, "severe", text, (text,), text),),
    )
    return Diagnosis(text, text, (subject,), (text,), {text: text})
