"""What agents know and release along a real stream, and how far answers are from the truth of the other half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from benchmarks.real.sets import RealSet
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import (
    AgentEstimates,
    Bools,
    Floats,
    Ints,
    OwnSamples,
    ReleaseColumns,
)

LEAST = 5
"""Owners with fewer values in either half are answered, and not scored."""
PSEUDO_VALUES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One random half of a set, in the order of the stream, and what the other half says of every owner."""

    owner: Ints
    value: Floats
    n_owners: int
    truth: Floats
    truth_count: Ints
    sample_variance: Floats

    @classmethod
    def split(cls, data: RealSet, seed: int, *, share: float = 0.5, in_time: bool = False) -> Self:
        """Draw every value's part by its own coin.

        Values of an owner are shuffled unless they stay `in_time`.
        """
        rng = np.random.default_rng([seed, len(data.owner)])
        value = data.value if in_time else _reordered(data, rng)
        mine = rng.random(len(data.owner)) < share
        n = int(data.owner.max()) + 1
        other = data.owner[~mine]
        held = value[~mine]
        count = np.bincount(other, minlength=n)
        mean = np.bincount(other, held, n) / np.maximum(count, 1)

        return cls(
            owner=data.owner[mine],
            value=value[mine],
            n_owners=n,
            truth=mean,
            truth_count=count,
            sample_variance=_sample_variance(data, n),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known at one place of the stream.

    Releases and what follows from them is public, own samples are not.
    """

    latest: ReleaseColumns
    pool: VariancePosterior
    own: OwnSamples


def replayed(
    half: Half, settings: AgentsSettings, noise: KeyedNoise, shares: Iterable[float]
) -> Iterator[Known]:
    """Give what is known after each of these shares of the stream, as the engine would at its end.

    Agents are those of `Agents`, votes among them: nothing here draws noise or decides what is
    released. At the end of a file the engine has everybody release once more, and so it is here
    after the whole stream.
    """
    everybody = Agents(settings, noise)
    pool = FollowedReleases(settings)
    everybody.add_agents([str(owner) for owner in range(half.n_owners)])
    done = 0

    for share in sorted(shares):
        upto = int(share * len(half.owner))
        now = np.arange(done, upto, dtype=np.float64)
        batch = everybody.update(half.owner[done:upto], half.value[done:upto], now)
        pool.observe(batch.releases, batch.before)

        if share == 1:
            batch = everybody.release_now(float(upto))
            pool.observe(batch.releases, batch.before)

        done = upto
        yield Known(
            latest=pool.combined(everybody.latest()), pool=pool.posterior, own=everybody.own()
        )


def _reordered(data: RealSet, rng: np.random.Generator) -> Floats:
    """Shuffle each owner's values among its places: a year's seasons are not what is measured."""
    place = np.argsort(data.owner, kind="stable")
    drawn = np.lexsort((rng.random(len(data.owner)), data.owner))
    value = np.empty_like(data.value)
    value[place] = data.value[drawn]

    return value


def _sample_variance(data: RealSet, n: int) -> Floats:
    """Variance of one value of each owner, from both halves and as if some values were of a typical owner.

    An owner of twenty values that are all 0 has no event yet: neither its truth nor its own mean is
    known exactly.
    """
    count = np.bincount(data.owner, minlength=n)
    mean = np.bincount(data.owner, data.value, n) / np.maximum(count, 1)
    squares = np.bincount(data.owner, (data.value - mean[data.owner]) ** 2, n)
    free = np.maximum(count - 1, 0)

    return (squares + PSEUDO_VALUES * squares.sum() / free.sum()) / (free + PSEUDO_VALUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Per scored owner and half.

    What the answer errs more than the own mean, what that errs, whether intervals cover.

    `more` is `(answer - truth)^2 - (own - truth)^2` with the other half's mean as truth: its own
    sampling error has no part in the expectation, and little in the variance. `alone` is the
    sampling variance of the own mean, `pulled` how far the answer lies from it towards the middle
    of all, in the standard errors that an own mean of so many values has on average (some owners
    have one value only, again and again).
    """

    owner: Ints
    half: Ints
    count: Ints
    more: Floats
    alone: Floats
    covered: Bools
    covered_alone: Bools
    far: Bools
    pulled: Floats

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put together what several halves of the same data say."""
        found = {
            f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)
        }
        return cls(
            **found
            | {"half": np.repeat(np.arange(len(parts)), [len(part.count) for part in parts])}
        )

    @property
    def halves(self) -> int:
        """How many halves were judged."""
        return int(self.half.max(initial=0)) + 1

    @property
    def ratio(self) -> float:
        """Squared error relative to learning alone."""
        return 1 + float(self.more.sum() / self.alone.sum())

    @property
    def stderr(self) -> float:
        """Standard error of the ratio by the delta method.

        The larger of that over owners and that over halves.

        Where one or two owners with few values make up most of the error alone, that over owners
        says next to nothing.
        """
        away = self.more - (self.ratio - 1) * self.alone
        found = 0.0
        for who in (self.owner, self.half):
            each = np.bincount(np.unique(who, return_inverse=True)[1], away)
            if len(each) > 1:
                found = max(found, float(np.sqrt((each**2).sum() * len(each) / (len(each) - 1))))

        return found / float(self.alone.sum())


def errors_of(
    half: Half, own: OwnSamples, agent: Ints, answer: AgentEstimates, alone: AgentEstimates
) -> Errors:
    """Judge answers of some agents by the other half.

    An interval covers if the other half's mean lies in it after it is widened by that mean's
    sampling variance. The farthest are the 5 % whose other-half mean, less 1.64 of its standard
    errors, is farthest from the middle of all.
    """
    used = (half.truth_count[agent] >= LEAST) & (own.count[agent] >= LEAST)
    who = agent[used]
    truth = half.truth[who]
    of_sample = half.sample_variance[who]
    noise = of_sample / half.truth_count[who]

    def covers(answer: AgentEstimates) -> Bools:
        low = answer.lower[used]
        high = answer.upper[used]
        widened = np.sqrt((high - low) ** 2 / 4 + 1.96**2 * noise)
        return np.abs(truth - (low + high) / 2) <= widened * (1 + 1e-12)

    side = truth - np.median(truth)
    away = np.abs(side) - 1.64 * np.sqrt(noise)
    raw = own.mean[who]
    alone_variance = of_sample / own.count[who]

    return Errors(
        owner=who,
        half=np.zeros(len(who), np.int64),
        count=own.count[who],
        more=(answer.value[used] - raw) * (answer.value[used] + raw - 2 * truth),
        alone=alone_variance,
        covered=covers(answer),
        covered_alone=covers(alone),
        far=away >= np.quantile(away, 0.95) if len(away) else np.zeros(0, np.bool_),
        pulled=(raw - answer.value[used])
        * np.sign(side)
        * np.sqrt(own.count[who] / of_sample.mean()),
    )
