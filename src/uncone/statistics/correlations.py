import numpy as np

CORRELATIONS = np.linspace(0.0, 0.95, 20)  # All that are weighed, each as likely as another before the data
