"""The results: small frozen records, to and from versioned JSON. Standard library only, so reports need no tensors."""

from uncone.records.diagnosis import SCHEMA, Diagnosis, Subject
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Picture, Spectrum

__all__ = [
    "SCHEMA",
    "Diagnosis",
    "Finding",
    "Group",
    "Groups",
    "Measurement",
    "Norms",
    "Picture",
    "Spectrum",
    "Subject",
]
