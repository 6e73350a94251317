"""One private mean per group of a data frame, with intervals: python examples/mean_delays.py"""

import numpy as np
import pyarrow as pa

import meanstream

# Delays of 200 aircraft; any frame of pandas, polars, DuckDB or Arrow will do.
rng = np.random.default_rng(1)
plane = rng.integers(0, 200, 40_000)
flights = pa.table({"plane": [f"N{i}" for i in plane], "delay": rng.normal(8 + plane % 7, 20)})

found = meanstream.private_means(
    flights,
    by="plane",
    value="delay",
    lower=-30,
    upper=120,
    epsilon=1.0,
    delta=1e-6,  # of one flight's delay
)
print(found)

# What was released of each aircraft by itself, and what all releases together say of it.
table = found.to_arrow()
truth = 8 + np.array([int(name[1:]) for name in table["plane"].to_pylist()]) % 7
for column in ("released", "mean"):
    print(
        f"{column:<9} root mean squared error {np.sqrt(np.mean((np.asarray(table[column]) - truth) ** 2)):.2f} minutes"
    )
