"""A private running mean with river's interface, one sample at a time.

Python examples/river_statistic.py
"""

import numpy as np

import meanstream

noise = meanstream.KeyedNoise(  # meanstream secret new FILE makes a key of your own
    bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="example", purpose="agents"
)
mean = meanstream.PrivateMean(0.0, 10.0, epsilon=1.0, delta=1e-6, noise=noise)
for x in np.random.default_rng(1).normal(6, 1, 5_000):
    mean.update(x)
half = 1.96 * mean.noise_stddev
print(
    f"private mean {mean.get():.2f} of {mean.n:,} samples; the mean itself is within {half:.2f} of it, 95 times of 100"
)
