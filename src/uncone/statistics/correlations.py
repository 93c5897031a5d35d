import numpy as np

CORRELATIONS = np.linspace(0.0, 0.95, 20)  # equally likely before the data
