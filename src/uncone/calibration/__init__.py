"""What a similarity of this model means: the scores of random pairs, and thresholds from them. No vector is changed."""
