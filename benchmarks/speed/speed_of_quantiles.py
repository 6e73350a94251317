"""Quantiles and exceedances of real owners of values.

What the learned prior gains, and whether intervals cover.

    python benchmarks/speed/speed_of_quantiles.py python benchmarks/speed/speed_of_quantiles.py
    --sets "tail, delay" --shares 0.05,0.1,0.2,0.4 --seeds 5 python
    benchmarks/speed/speed_of_quantiles.py --table quantiles.md

Loss: one random half of every owner's values is its stream, the other half the truth. Owners with
at least 5 values in each half are scored by the pinball loss of the answer in the other half, less
that of the best answer there. "alone" is the quantile of the own samples; "learned" mixes in the
prior of everybody's noised histograms; "public" is "learned" with histograms without noise;
"released" is what anybody can tell from the releases alone.

Coverage: owners with at least 100 values are laws, whose quantiles and exceedances are known. Each
draws 5 to 100 samples of its own law; how many of the intervals of level .95 hold the truth, by
stratum of the number of samples, on average over the seeds and in the worst one. Made sets
(`real/made.py`) are of kinds of laws that nothing was tuned on.

All is done by the operators of the engine with its settings, one release per owner. Prints JSON;
exit code 1 where a goal is missed: learned at most alone (two standard errors allowed) in every
stratum with 200 owners or more, coverage at least .93 on average over the seeds and .90 in the
worst one, where a stratum has 200 owners or more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real.made import made_sets
from benchmarks.real.sets import RealSet, real_sets
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END, HISTOGRAM_SHARE
from meanstream.operators.agents.own_histogram import histograms_of_releases
from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
from meanstream.operators.collaboration.shares.shares_prior import NoisedShares, fit_shares_prior
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints

ASKED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "tail, delay": ((0.5, 0.9), (30.0,)),
    "flight, delay": ((0.5, 0.9), (30.0,)),
    "route, delay": ((0.5, 0.9), (30.0,)),
    "tail, air time": ((0.5, 0.9), (180.0,)),
    "baseball, hits": ((0.75,), (0.0,)),
    "baseball, home runs": ((), (0.0,)),  # quantiles of rare events are coin tosses
    "made: two humps": ((0.5, 0.9), (5.0,)),
    "made: gamma waits": ((0.5, 0.9), (20.0,)),
    "made: zeros and amounts": ((0.5, 0.9), (15.0,)),
    "made: marks 1 to 5": ((), (2.0, 4.0)),  # quantiles of few values are coin tosses
    "made: beta": ((0.1, 0.5, 0.9), (0.8,)),
}
STRATA = ((5, 30), (30, 100), (100, 10**9))
LEAST_VALUES = 5
LEAST_LAW = 100
LEAST_OWNERS = 200
LEVEL = 0.95
TABLE_SAYS = """Epsilon 1, delta 1e-6, a tenth of the budget for the histogram, one release of each owner.

**Loss** is the pinball loss in the other half of an owner's values, less that of the best answer there.

- *Alone* is the quantile of its own values in the first half, without privacy.
- *Learned* mixes its own exact counts with the prior of all noisy histograms.
- *Public* does so with histograms without noise.
- *Released* is the public answer, from releases alone.

**Coverage** is of 95 % intervals. Owners of at least 100 values are laws of known truth, and 5 to 99 samples are
drawn from each. Owners of *made* sets (`benchmarks/real/made.py`) have laws of their own, of kinds that were not
used for tuning."""


def main() -> None:
    """Measure every set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=";".join(ASKED), help="names, by semicolons")
    parser.add_argument("--epsilons", default="1")
    parser.add_argument(
        "--shares", default=str(HISTOGRAM_SHARE), help="of the budget for histograms"
    )
    parser.add_argument("--seeds", type=int, default=10)

    parser.add_argument(
        "--first-seed", type=int, default=100, help="those below 100 have tuned what is measured"
    )
    parser.add_argument("--table", type=Path, help="write a table, as Markdown")
    options = parser.parse_args()
    cells: list[dict[str, Any]] = []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    names = options.sets.split(";")

    for data in itertools.chain(real_sets(names), made_sets(names)):
        for epsilon in (float(one) for one in options.epsilons.split(",")):
            for share in (float(one) for one in options.shares.split(",")):
                settings = settings_of(data, epsilon, share)
                found = [*losses(data, settings, seeds), *coverages(data, settings, seeds)]
                cells += [
                    {"set": data.name, "epsilon": epsilon, "share": share, **cell} for cell in found
                ]

    missed = [cell for cell in cells if cell["missed"]]
    json.dump({"seeds": options.seeds, "missed": len(missed), "cells": cells}, sys.stdout, indent=1)
    print()

    if options.table:
        options.table.write_text(
            table_of(
                cells,
                shlex.join(["python", "benchmarks/speed/speed_of_quantiles.py", *sys.argv[1:]]),
            )
        )

    sys.exit(1 if missed else 0)


def settings_of(data: RealSet, epsilon: float, share: float) -> AgentsSettings:
    """Give the settings of `private_means` for a set."""
    return AgentsSettings(
        lower=data.lower, upper=data.upper, epsilon=epsilon, delta=1e-6, schedule=AT_THE_END, horizon=1,
        histogram_share=share, exceeds=ASKED[data.name][1],
    )  # fmt: skip


def losses(data: RealSet, settings: AgentsSettings, seeds: range) -> Iterator[dict[str, Any]]:
    """Score answers by the other half of every owner's values, by quantile and stratum."""
    found: dict[tuple[float, str], list[dict[str, tuple[float, float]]]] = {}
    owners: dict[str, int] = {}
    for seed in seeds:
        mine = np.random.default_rng([seed, len(data.owner)]).random(len(data.owner)) < 0.5
        halves = (
            by_owner(data.owner[mine], data.value[mine]),
            by_owner(data.owner[~mine], data.value[~mine]),
        )
        scored = [o for o in halves[0] if min(len(h.get(o, ())) for h in halves) >= LEAST_VALUES]
        answers = answered(data, mine, settings, np.array(scored), seed)
        size = np.array([len(halves[0][o]) for o in scored])

        for i, q in enumerate(ASKED[data.name][0]):
            alone = np.array([np.quantile(halves[0][o], q) for o in scored])
            told = {"alone": alone, **{name: values[:, i] for name, values in answers.items()}}
            best = np.array(
                [pinball(halves[1][o], float(np.quantile(halves[1][o], q)), q) for o in scored]
            )

            for low, high in STRATA:
                some = np.flatnonzero((size >= low) & (size < high))
                loss = {
                    name: np.array(
                        [pinball(halves[1][scored[j]], float(value[j]), q) - best[j] for j in some]
                    )
                    for name, value in told.items()
                }

                if len(some):
                    found.setdefault((q, stratum(low, high)), []).append(
                        {
                            name: (
                                float(one.mean()),
                                float((one - loss["alone"]).std() / np.sqrt(len(some))),
                            )
                            for name, one in loss.items()
                        }
                    )

                    owners[stratum(low, high)] = len(some)

    for (q, name), runs in found.items():
        mean = {method: float(np.mean([run[method][0] for run in runs])) for method in runs[0]}
        error = float(
            np.mean([run["learned"][1] for run in runs])
        )  # the owners are the same in all of them
        missed = owners[name] >= LEAST_OWNERS and mean["learned"] > mean["alone"] + 2 * error
        rounded = {method: round(value, 4) for method, value in mean.items()}

        yield {
            "what": f"loss of quantile {q:g}",
            "samples": name,
            "owners": owners[name],
            **rounded,
            "missed": missed,
        }


def answered(
    data: RealSet, mine: np.ndarray, settings: AgentsSettings, scored: Ints, seed: int
) -> dict[str, Floats]:
    """Answer all owners' quantiles, shape (owners, quantiles) each."""
    agents = released(data.owner[mine], data.value[mine], int(data.owner.max()) + 1, settings, seed)
    asked = asked_of(data, settings)
    told = histograms_of_releases(agents.latest())
    raw = agents.own().cells
    if settings.histogram is None:
        raise SystemExit("quantiles needs a share of the budget for histograms")
    exact = settings.histogram.bins_of_cells(raw)[told.agent]
    noiseless = NoisedShares(
        counts=exact.astype(float), samples=told.samples, variance=np.zeros(len(exact))
    )

    prior = asked.fit(told, told.agent)
    public = fit_shares_prior(noiseless, asked.law.widths)
    place = np.searchsorted(told.agent, scored)
    by_release = asked.released(prior, type(told)(*(column[place] for column in told)))

    return {
        "learned": asked.own(prior, raw[scored]).quantiles[..., 0],
        "public": asked.own(public, raw[scored]).quantiles[..., 0],
        "released": by_release.quantiles[..., 0],
    }


def coverages(data: RealSet, settings: AgentsSettings, seeds: range) -> Iterator[dict[str, Any]]:
    """Draw samples of known laws, and count the intervals that hold the truth, by question and stratum."""
    laws = [v for v in by_owner(data.owner, data.value).values() if len(v) >= LEAST_LAW]
    quantiles, exceeds = ASKED[data.name]
    truth = [np.array([np.quantile(v, q, method="inverted_cdf") for v in laws]) for q in quantiles]
    truth += [np.array([np.mean(v > t) for v in laws]) for t in exceeds]
    names = [f"quantile {q:g}" for q in quantiles] + [f"share above {t:g}" for t in exceeds]
    found: dict[tuple[str, str, str], list[float]] = {}
    owners: dict[str, list[int]] = {}

    for seed in seeds:
        rng = np.random.default_rng([seed, 2])
        size = np.exp(rng.uniform(np.log(5), np.log(100), len(laws))).astype(int)
        drawn = np.concatenate([rng.choice(v, n) for v, n in zip(laws, size, strict=True)])
        agents = released(np.repeat(np.arange(len(laws)), size), drawn, len(laws), settings, seed)
        asked = asked_of(data, settings)
        told = histograms_of_releases(agents.latest())
        prior = asked.fit(told, told.agent)

        for method, answer in (
            ("learned", asked.own(prior, agents.own().cells)),
            ("released", asked.released(prior, told)),
        ):
            every = np.concatenate([answer.quantiles, answer.exceeds], axis=1)
            for i, name in enumerate(names):
                holds = (every[:, i, 1] <= truth[i] + 1e-9) & (truth[i] <= every[:, i, 2] + 1e-9)
                for low, high in STRATA[:2]:
                    some = (size >= low) & (size < high)
                    found.setdefault((method, name, stratum(low, high)), []).append(
                        float(holds[some].mean())
                    )
                    owners.setdefault(stratum(low, high), []).append(int(some.sum()))

    for (method, name, of), covered in found.items():
        mean = float(np.mean(covered))
        worst = min(covered)
        n = int(np.mean(owners[of]))
        missed = n >= LEAST_OWNERS and (mean < 0.93 or worst < 0.90)
        yield {
            "what": f"coverage of {name}", "method": method, "samples": of, "owners": n,
            "mean": round(mean, 3), "worst": round(worst, 3), "missed": missed,
        }  # fmt: skip


def released(owner: Ints, value: Floats, n: int, settings: AgentsSettings, seed: int) -> Agents:
    """Have every owner release once."""
    noise = KeyedNoise(
        np.random.default_rng([seed, 1]).bytes(16), deployment="quantiles", purpose="agents"
    )
    agents = Agents(settings, noise)
    agents.add_agents([str(i) for i in range(n)])
    agents.update(owner, value, np.arange(len(owner), dtype=np.float64))
    agents.release_now(float(len(owner)))

    return agents


def asked_of(data: RealSet, settings: AgentsSettings) -> ShareQueries:
    """Ask what this benchmark asks of a set."""
    return ShareQueries(replace(settings), ASKED[data.name][0], LEVEL)


def by_owner(owner: Ints, value: Floats) -> dict[int, Floats]:
    """Give every owner's values."""
    order = np.argsort(owner, kind="stable")
    names, first = np.unique(owner[order], return_index=True)
    return dict(zip(names.tolist(), np.split(value[order], first[1:]), strict=True))


def pinball(values: Floats, answer: float, q: float) -> float:
    """Mean pinball loss of an answer."""
    off = values - answer
    return float(np.mean(np.maximum(q * off, (q - 1) * off)))


def stratum(low: int, high: int) -> str:
    """Name a stratum of the number of samples."""
    return f"{low}-{high - 1}" if high < 10**9 else f"{low} and more"


def table_of(cells: list[dict[str, Any]], command: str) -> str:
    """Write all cells as Markdown."""
    lines = ["# Quantiles and shares, measured", "", TABLE_SAYS, ""]
    lines += [f"Written by `{command}`.", ""]
    lines += ["| set | loss of | samples | owners | alone | learned | public | released |"]
    lines += ["|---|---|---|---|---|---|---|---|"]

    for c in (c for c in cells if "alone" in c):
        told = " | ".join(f"{c[name]:.3g}" for name in ("alone", "learned", "public", "released"))
        lines.append(
            f"| {c['set']} | {c['what'][8:]} | {c['samples']} | {c['owners']:,} | {told} |"
        )

    lines += [
        "",
        "| set | coverage of | by | samples | owners | mean | worst seed |",
        "|---|---|---|---|---|---|---|",
    ]

    for c in (c for c in cells if "method" in c):
        row = (
            c["set"],
            c["what"][12:],
            c["method"],
            c["samples"],
            f"{c['owners']:,}",
            c["mean"],
            c["worst"],
        )

        lines.append("| " + " | ".join(map(str, row)) + " |")

    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
