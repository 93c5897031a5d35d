"""What a similarity of a model means: the scores of random pairs, and thresholds from them."""
