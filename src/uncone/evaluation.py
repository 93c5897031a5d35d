"""`evaluate`: what tasks say of a model with and without each repair."""
