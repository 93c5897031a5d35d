"""What a similarity of this model means: the scores of random pairs, and thresholds from them. No vector is changed."""

from uncone.calibration.calibrating import ALL_PAIRS, RATES, PairTable, calibrate
from uncone.calibration.drift import drift
from uncone.calibration.texts import encoded_texts

__all__ = ["ALL_PAIRS", "RATES", "PairTable", "calibrate", "drift", "encoded_texts"]
