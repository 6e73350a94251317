"""Cost of keyed noise against numpy's generator, measured in turns in one run.

Run from the repository: `python benchmarks/speed/speed_of_noise.py`. Prints JSON: the median
nanoseconds of CPU time per draw, and the same divided by `standard_normal` of PCG64.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from meanstream.operators.forecast.simulated_noise import SimulationNoise
from meanstream.operators.noise.keyed import GaussianNoise, KeyedNoise, LaplaceNoise, NoiseIds

DRAWS = 1_000_000
TURNS = 7


def contenders() -> dict[str, Callable[[], object]]:
    """One call of each makes `DRAWS` draws."""
    keyed = KeyedNoise(
        b"6dc4c01b6b494373b7fb165cabd569fc", deployment="benchmark", purpose="release"
    )
    seeded = SimulationNoise(seed=1)
    generator = np.random.default_rng(1)
    count = np.arange(DRAWS)
    owner = np.stack([count, count], axis=1).astype(np.uint64)
    ids = NoiseIds(owner, count, keyed.version_of(count, count))
    gaussian = GaussianNoise(1000.0)

    laplace = LaplaceNoise(1000.0)
    return {
        "numpy_standard_normal": lambda: generator.standard_normal(DRAWS),
        "keyed_bits": lambda: keyed.bits(ids),
        "keyed_gaussian": lambda: gaussian.sample(keyed.bits(ids)),
        "keyed_laplace": lambda: laplace.sample(keyed.bits(ids)),
        "simulation_gaussian": lambda: gaussian.sample(seeded.bits(ids)),
        "version_of": lambda: keyed.version_of(count, count),
    }


def main() -> None:
    """Run the contenders in turns, so that a busy machine slows all of them alike."""
    calls = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)

    nanoseconds = {
        name: statistics.median(values) / DRAWS * 1e9 for name, values in seconds.items()
    }
    reference = nanoseconds["numpy_standard_normal"]
    report = {
        "draws": DRAWS,
        "nanoseconds_per_draw": {name: round(value, 1) for name, value in nanoseconds.items()},
        "ratio_to_numpy_standard_normal": {
            name: round(value / reference, 2) for name, value in nanoseconds.items()
        },
    }

    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
