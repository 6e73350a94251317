"""One private mean per week over all users, by local privacy and by a curator.

Python examples/weekly_delays.py
"""

import numpy as np
import pyarrow as pa

import meanstream

WEEK = 7 * 86_400
BEGIN = 1_767_225_600  # 1 January 2026
rng = np.random.default_rng(1)
users, weeks = 4_000, 3
who = np.tile(np.arange(users), weeks)
passed = np.repeat(np.arange(weeks), users) * WEEK + rng.integers(0, WEEK, users * weeks)
hours = pa.table(
    {"user": who, "hours": rng.gamma(4, 1 + passed / (4 * WEEK)), "time": BEGIN + passed}
)
asked = {
    "by": "user",
    "value": "hours",
    "time": "time",
    "lower": 0,
    "upper": 24,
    "window": "7d",
    "epsilon": 1.0,
}

print(meanstream.private_windows(hours, **asked))  # each user's report is randomized by itself
print(
    meanstream.private_windows(hours, **asked, central=True)
)  # a curator sees the rows, and noises a sum
