"""What is known of the figures of "Shrink the longest" (2025): its Table 3, and what it says of its second figure."""

ARMS = ("none", "selected", "all")
TABLE_3: dict[str, dict[str, tuple[tuple[float, float, float], ...]]] = {
    # For each model and task, A_1 to A_3; in each, the arms none, selected and all.
    "BERT-base": {
        "mrpc raw": ((0.679, 0.485, 0.541), (0.125, 0.098, 0.165), (0.023, 0.042, 0.028)),
        "mrpc centred": ((0.733, 0.483, 0.576), (0.034, 0.057, 0.050), (0.017, 0.024, 0.017)),
        "cola raw": ((0.647, 0.499, 0.502), (0.099, 0.076, 0.078), (0.028, 0.028, 0.023)),
        "cola centred": ((0.660, 0.468, 0.478), (0.038, 0.037, 0.032), (0.018, 0.022, 0.020)),
    },
    "RoBERTa-base": {
        "mrpc raw": ((0.629, 0.540, 0.559), (0.287, 0.214, 0.276), (0.012, 0.032, 0.021)),
        "mrpc centred": ((0.832, 0.611, 0.686), (0.036, 0.065, 0.061), (0.007, 0.019, 0.010)),
        "cola raw": ((0.581, 0.534, 0.542), (0.277, 0.222, 0.221), (0.016, 0.021, 0.018)),
        "cola centred": ((0.700, 0.512, 0.510), (0.056, 0.073, 0.063), (0.013, 0.019, 0.017)),
    },
}
"""Batches of 64 in training, mean of 5 runs over the last 30 % of steps; no spread is given. Which rows are raw and which centred is deduced."""
FIGURE_2 = (
    ("the task metric is slightly higher with the selected bars (Fig. 2, Table 2)", "none", "selected"),
    ("selecting the bars gives a higher task metric than all bars (section 5)", "all", "selected"),
)
"""Each claim with its arms: the second is said to have the higher metric."""
NUMBER_OF_FIGURE_2 = "unknown"
"""The text has neither the curves nor the cells of Table 2, and the authors' notebook holds no metric."""
