"""`calibrate`: what a similarity of this model means."""
