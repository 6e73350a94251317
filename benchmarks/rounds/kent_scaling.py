"""How Kent's estimators grow: time and memory as exponents, against the paper's Table 6.

    python benchmarks/rounds/kent_scaling.py
    python benchmarks/rounds/kent_scaling.py --json

Each law is measured at sizes a factor of 2 apart; its exponent is the slope of a line through the
logarithms, and holds if it is at most the limit. Exit code 1 if one does not.

Against Table 6: users hold sums, so that no time depends on T but the number of bins, T^(1/2) for
l_inf and (d T)^(1/2) for l2; the rotation costs d log d, not d^2; the statistician's memory is that
of the bins, whatever the number of users. Arrays are kept within the cache: beyond it, times grow
by one more step that is not the algorithm's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.vector_laws import vector_law_summaries
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.round_records import Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

TURNS = 15
BATCH = 1000
"""Users whose reports the statistician adds up at a time."""


@dataclass(frozen=True)
class Law:
    """A quantity that grows with one parameter.

    Attributes
    ----------
    limit : float
        The exponent in theory; fixed costs make measured ones smaller, and caches or noise larger
        by up to .15.
    """

    name: str
    unit: str
    values: tuple[int, ...]
    measure: Callable[[int], float]
    limit: float


def seconds(call: Callable[[], Any]) -> float:
    """Least CPU time over some turns: noise only adds."""
    found = []
    for _ in range(TURNS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)

    return min(found)


def peak(call: Callable[[], Any]) -> float:
    """Most bytes in use at once during a call."""
    tracemalloc.start()
    try:
        call()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def users(n: int, d: int, samples: int) -> Summaries:
    """Users with means around 0.1."""
    rng = np.random.default_rng(0)
    mean = 0.1 + rng.standard_normal((n, d) if d > 1 else n) / math.sqrt(samples) / d
    return vector_law_summaries(np.clip(mean, -1.0, 1.0), np.full(n, samples), rng)


def estimator(name: str, *, n: int, samples: int, **options: Any) -> Any:
    """Build an estimator in mode paper, whose bins follow T."""
    sizes = SizeDistribution.parse(f"point:{samples}")
    return build_estimator(name, epsilon=1.0, users=n, sizes=sizes, mode="paper", **options)


def encode(name: str, n: int, d: int, samples: int, **options: Any) -> float:
    """Time in which n users make their first report."""
    stage = estimator(name, n=n, samples=samples, **options).rounds[0]
    given = users(n, d, samples)
    return seconds(lambda: stage.encode(given, {}, SeededWords(np.random.default_rng(0), n)))


def adding(n: int, samples: int, measure: Callable[[Callable[[], Any]], float]) -> float:
    """Time or memory in which the statistician adds up the votes of n users, in batches."""
    stage = estimator("kent.linf", n=n, samples=samples, dimension=4, constant=0.25).rounds[0]
    batch = stage.encode(users(BATCH, 4, samples), {}, SeededWords(np.random.default_rng(0), BATCH))

    def add() -> None:
        total = Tally()
        for _ in range(n // BATCH):
            total += stage.tally(batch, {})
        stage.decode(total, {})

    return measure(add)


def features(terms: int) -> float:
    """Time of the features of 1000 samples."""
    density = estimator("kent.density", n=10_000, samples=100, terms=terms)
    values = np.random.default_rng(0).uniform(-1, 1, (1000, 1))
    return seconds(lambda: density.features(values))


def rotation(d: int) -> float:
    """Time in which 100 users rotate their means."""
    mean = estimator("kent.l2", n=4 * d, samples=100, dimension=d)
    given = users(100, d, 100)
    return seconds(lambda: mean.rotated(given))


def hashing(d: int) -> float:
    """Time in which 100 users hash their marks, and the statistician adds them up."""
    stage = estimator("kent.sparse_select", n=4000, samples=100, dimension=d, sparsity=4).rounds[0]
    given = users(100, d, 100)

    def both() -> None:
        stage.tally(stage.encode(given, {}, SeededWords(np.random.default_rng(0), 100)), {})

    return seconds(both)


def mixture(m: int) -> float:
    """Time in which 20 000 users report about components, and the statistician adds up."""
    n = 20_000
    stage = estimator("kent.mixture", n=n, samples=10_000, components=m, half_width=1 / 200).rounds[
        2
    ]
    given = users(n, 1, 10_000)
    public = {"middles": np.linspace(-0.9, 0.9, m).tolist()}

    def both() -> None:
        stage.tally(stage.encode(given, public, SeededWords(np.random.default_rng(0), n)), public)

    return seconds(both)


LAWS = (
    Law(
        "l_inf, users' time",
        "samples",
        (2000, 8000, 32_000, 128_000),
        lambda t: encode("kent.linf", 2000, 4, t, dimension=4, constant=0.25),
        0.5,
    ),
    Law(
        "l_inf, users' time",
        "users",
        (4000, 8000, 16_000, 32_000),
        lambda n: encode("kent.linf", n, 4, 2000, dimension=4),
        1.0,
    ),
    Law("l2, users' time", "dimension", (128, 256, 512, 1024), rotation, 1.0 + 1 / math.log(362)),
    Law(
        "l_inf, adding up: time",
        "users",
        (4000, 8000, 16_000, 32_000),
        lambda n: adding(n, 2000, seconds),
        1.0,
    ),
    Law(
        "l_inf, adding up: memory",
        "users",
        (4000, 8000, 16_000, 32_000),
        lambda n: adding(n, 2000, peak),
        0.0,
    ),
    Law(
        "l_inf, adding up: memory",
        "samples",
        (2000, 8000, 32_000, 128_000),
        lambda t: adding(4000, t, peak),
        0.5,
    ),
    Law("sparse, time", "dimension", (256, 512, 1024, 2048), hashing, 1.0),
    Law("density, users' time", "terms", (16, 32, 64, 128), features, 1.0),
    Law("mixture, time", "components", (4, 8, 16, 32), mixture, 1.0),
)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def main() -> None:
    """Measure every law and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []

    for law in LAWS:
        law.measure(law.values[0])  # imports, caches
        measured = [law.measure(value) for value in law.values]
        slope = exponent(law.values, measured)

        rows.append(
            {
                "law": law.name,
                "parameter": law.unit,
                "values": list(law.values),
                "measured": measured,
                "exponent": slope,
                "limit": law.limit,
                "holds": slope <= law.limit + 0.15,
            }
        )

        if not options.json:
            verdict = "" if rows[-1]["holds"] else "   MISSED"
            print(
                f"{law.name:26s} {law.unit:11s} exponent {slope:5.2f}, in theory {law.limit:.2f}{verdict}",
                flush=True,
            )

    if options.json:
        print(json.dumps({"laws": rows}, indent=1))
    sys.exit(not all(row["holds"] for row in rows))


if __name__ == "__main__":
    main()
