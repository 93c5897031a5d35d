"""Does training go on to help, and what does the rank of the head cost: curves, scaling laws, checkpoints, the bottleneck."""
