"""Algorithm 1 on a stream.

Each sample of an agent lets it query one other, whenever the samples of the two come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from meanstream.lab.papers.colme.pairwise_batch import SamplesInOrder, numbered_within
from meanstream.lab.papers.colme.pairwise_partners import BLOCK
from meanstream.lab.papers.colme.pairwise_state import PairwiseState
from meanstream.lab.papers.colme.pairwise_statistic import Received
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.lab.papers.colme.same_mean import (
    same_mean_known,
    same_mean_significance,
    same_mean_welch,
)
from meanstream.lab.papers.colme.same_mean_tests import ClassInterval, class_interval
from meanstream.lab.papers.colme.variance_trackers import ReleasedVariance, scheme_sample_variance
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.noise.draw_owners import PAIR_SQUARES, PAIR_SUMS
from meanstream.operators.noise.keyed import NoiseIds, NoiseSource, keyed_owner_words
from meanstream.operators.records import AgentEstimates, Bools, Floats, Ints, Words
from meanstream.operators.validation import require

_SUMS = ("exact", "coarse", "squares")
_BETWEEN = "\x1f"  # no name holds a control character


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseReleases:
    """Each for its reader and for no one else.

    What agents released to those who queried them, in event order.

    Attributes
    ----------
    agent, reader : int array (n,)
        Numbers of the agent that was queried, and of the one that did.
    index : int array (n,)
        Which release of the one to the other it is, from 1.
    charge : int array (n,)
        Which release of the agent it is, to whomever, from 1.
    count, total : int array (n,)
        Samples in the sum; the noised sum in grid units.
    mean, noise_variance : float array (n,)
        The noisy mean and the variance of its noise, in the value's unit.
    variance : float array (n,)
        Variance of one sample, as the agent releases it with variance "released"; infinite where it
        cannot be used.
    version : uint64 array (n,)
        Keyed digest of the input: it stays in the ledger.
    time : float array (n,)
        Event time of the query, in seconds.
    """

    agent: Ints
    reader: Ints
    index: Ints
    charge: Ints
    count: Ints
    total: Ints
    mean: Floats
    noise_variance: Floats
    variance: Floats
    version: Words
    time: Floats

    def __len__(self) -> int:
        return len(self.agent)


class PairwiseStream(PairwiseState):
    """All pairs of a federation whose samples come as they come.

    An agent queries one partner at each of its samples. It receives the noised sum of the partner's
    samples up to that event time. A partner that has no new sample since the last query does not
    answer, as if its message were lost. Under one sample of every agent per time this is Algorithm
    1 as `PairwiseAgents` simulates it.

    Released: to the agent that queries, and to no one else, the noised sum of the agent that it
    queries.

    Parameters
    ----------
    settings : PairwiseStreamSettings
    noise : NoiseSource
        The keyed source, from which it takes a key of its own.
    capacity : int
        Largest number of agents.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one). All releases of one agent to one
    reader are (epsilon, delta)-differentially private; see `PairwiseStreamSettings.coalition_epsilon` for readers who
    pool theirs. Under round robin, whom an agent queries and whether it gets an answer depend on who has samples and
    when. Under restricted_round_robin they depend on the reader's raw mean, too: who queried whom, and how many
    releases there are, must reach nobody but the operator.

    Examples
    --------
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, mode="paper", counter="pm1")
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="docs", purpose="agents")
    >>> stream = PairwiseStream(PairwiseStreamSettings(release=release, stddev=0.3), noise, capacity=3)
    >>> made = stream.take(np.arange(3), np.array([0.1, 0.2, 0.9]), np.zeros(3), ["a", "b", "c"])
    >>> made.agent.tolist(), made.reader.tolist(), made.index.tolist()
    ([1, 0, 0], [0, 1, 2], [1, 1, 1])
    """

    def __init__(
        self, settings: PairwiseStreamSettings, noise: NoiseSource, *, capacity: int
    ) -> None:
        most = settings.most_agents
        rule = f"be at most {most} with schedule {settings.schedule}, or come with partners"
        require(most is None or capacity <= most, "max_agents", rule, capacity)
        super().__init__(settings, capacity=capacity)
        self._noise = noise.derived("pairwise stream", settings.key())

    def take(
        self, agent: Ints, value: Floats, time: Floats, names: Sequence[str]
    ) -> PairwiseReleases:
        """Take samples in the order of event time; each lets its agent query.

        Parameters
        ----------
        agent : int array (n,)
            Number of the agent of each sample.
        value, time : float array (n,)
            In the value's unit; in seconds, never decreasing. All samples of one time come in one
            call.
        names : sequence of str
            Names of all agents so far, by number.
        """
        return self.take_points(agent, self._grid.encode(value), time, names)

    def take_points(
        self, agent: Ints, point: Ints, time: Floats, names: Sequence[str]
    ) -> PairwiseReleases:
        """Do the same with samples that are on the grid already."""
        before = self._present
        self.names = names
        node = self._join(agent, names)
        coarse = np.rint((point - self._grid.span // 2) / self.settings.shift).astype(np.int64)
        columns = np.stack([point, coarse, coarse**2], axis=1)
        sums = np.stack([self._own[n] for n in _SUMS], axis=1)
        samples = SamplesInOrder(node, columns, time, self._own["count"], sums, present=before)
        self._dirty_own |= set(np.unique(node // BLOCK).tolist())
        made = [self._query(samples, which) for which in samples.turns()]
        self._own["seen"][node] = time  # the last one of each stays
        found, more = samples.totals()

        for place, name in enumerate(_SUMS):
            self._own[name][found] += more[:, place]

        return self._released(made, samples.time)

    def estimate(
        self, agents: Ints, *, level: float = 0.95
    ) -> tuple[AgentEstimates, AgentEstimates]:
        """Private: the estimates of some agents that have samples, and what each has alone.

        Each for its agent only.
        """
        node = self._node[agents]
        mean = self._own["mean"][node]
        sums = self._layout.add_up(self._state["pair"], node, self._nodes, mean)
        own = self._own_variance(node)
        unknown = np.isinf(own)
        precision = 1 / np.where(unknown, 1.0, own)
        total = precision + sums.weight
        together = np.where(unknown, mean, (precision * mean + sums.moment) / total)
        variance = np.where(unknown, own, 1 / total)

        alone = _around(mean, half_width_alone(own, level))
        interval = _around(together, half_width_alone(variance, level))

        if not self.settings.literal:
            made = self._own["count"][node]
            quantile = -ndtri(0.5 * same_mean_significance(made, self.settings.significance))
            honest = class_interval(together, mean, own, sums, quantile, level)
            ends = zip(alone, honest, strict=True)
            interval = ClassInterval(*(np.where(unknown, own_end, end) for own_end, end in ends))

        return (
            self._answer(together, interval, variance, own, sums.number + 1.0, level),
            self._answer(mean, alone, own, own, np.ones(len(node)), level),
        )

    def members(self, agent: int) -> list[str]:
        """Private, for the agent only.

        The agents whose releases count in its estimate, by name; itself is not named. The paper's
        class has more: who was not queried yet, and whose variance cannot be estimated yet.
        """
        reader = int(self._node[agent])
        partners = self._layout.partners(self._state["pair"], reader, self._nodes)
        return sorted(self._names[node] for node in partners.tolist())

    def _query(self, samples: SamplesInOrder, which: Ints) -> dict[str, Any]:
        """Let the agents of some samples, one each, take their sample, query, test and remember."""
        reader = samples.node[which]
        self._receive(reader, samples.columns[which, 0] - self._grid.span // 2)
        degree = self._layout.degree(reader, samples.present_at(which))
        asks = np.flatnonzero(degree > 0)
        place = self._next(reader[asks], degree[asks])
        asks, place = asks[place >= 0], place[place >= 0]
        self._own["last"][reader[asks]] = place

        target, row = self._layout.pick(reader[asks], place)
        count, sums = samples.behind(target, which[asks])
        pair = self._state["pair"]
        answers = np.flatnonzero(
            (count > pair["count"][row]) & (pair["index"][row] < self._counter.horizon)
        )
        at = asks[answers]

        return self._receive_releases(
            reader[at], target[answers], row[answers], count[answers], sums[answers]
        ) | {"position": which[at]}

    def _receive(self, reader: Ints, centered: Ints) -> None:
        # Equation (16) depends on where 0 is: as in the paper, in the middle of the declared
        # interval.
        own = self._own
        value = centered.astype(np.float64)
        own["count"][reader] += 1
        before = own["mean"][reader]
        own["total"][reader] += value
        mean = own["total"][reader] / own["count"][reader]
        own["spread"][reader] += (value - before) * (value - mean)
        own["mean"][reader] = mean

    def _next(self, reader: Ints, degree: Ints) -> Ints:
        """Return the place of the partner that each reader queries next; -1 where none is in its class."""
        place: Ints = (self._own["last"][reader] + 1) % np.maximum(degree, 1)
        if self.settings.schedule == "round_robin":
            return place
        rejected = self._state["pair"]["rejected"]
        left = degree.copy()
        waiting = np.arange(len(reader))

        while len(waiting):
            _, row = self._layout.pick(reader[waiting], place[waiting])
            waiting = waiting[rejected[row]]
            left[waiting] -= 1
            place[waiting[left[waiting] <= 0]] = -1
            waiting = waiting[left[waiting] > 0]
            place[waiting] = (place[waiting] + 1) % degree[waiting]

        return place

    def _receive_releases(
        self, reader: Ints, target: Ints, row: Ints, count: Ints, sums: Ints
    ) -> dict[str, Any]:
        """Release to those who queried; return what leaves."""
        settings = self.settings
        pair = self._state["pair"]
        half = self._grid.span // 2
        index = pair["index"][row].astype(np.int64) + 1

        exact = sums[:, 0]
        version = self._noise.version_of(count, exact)
        ids = NoiseIds(self._words(target, reader), index, version)
        fresh = settings.means.fresh.sample(self._noise.bits(ids, PAIR_SUMS.at()))
        noise = self._counter.step(self._state["counter"], row, index, fresh)
        noised = np.rint((exact - count * half).astype(np.float64) + noise)
        value, factors = self._statistic.add(
            self._state["statistic"], Received(row, row, index, count, noised / count)
        )
        of_sample = self._others_variance(ids, row, count, noised, sums)
        variance = factors.variance(of_sample, settings.means.fresh.variance)

        pair["index"][row] = index
        pair["count"][row] = count
        pair["value"][row] = value
        pair["precision"][row] = 1 / variance
        pair["rejected"][row] = ~self._accept(reader, value, variance, count)
        self._dirty_pairs |= set(self._layout.blocks(row).tolist())
        total = noised.astype(np.int64) + count * half

        return {
            "target": target, "reader": reader, "index": index, "count": count, "total": total, "version": version,
            "variance": of_sample,
        }  # fmt: skip

    def _others_variance(
        self, ids: NoiseIds, row: Ints, count: Ints, noised: Floats, sums: Ints
    ) -> Floats:
        """Return the variance of one sample of the queried agents, as their readers know, receive or estimate it."""
        scheme = self.settings.scheme
        noise = self.settings.squares_noise
        shift = self.settings.shift
        state = self._state["variance"]

        if scheme is None:
            return np.full(len(row), self._known)
        if not isinstance(scheme, ReleasedVariance):
            return scheme.step(state, row, ids.index, count, noised)

        assert noise is not None  # noqa: S101 - where variances are released there is noise for them
        _, raw, squares = sums.T.astype(np.float64)
        drawn = noise.sample(self._noise.bits(ids, PAIR_SQUARES.at()))
        told = {"raw_totals": raw, "raw_squares": squares, "totals": noised / shift, "fresh": drawn}

        return scheme.step(state, row, ids.index, count, **told) * float(shift) ** 2

    @property
    def _known(self) -> float:
        return (float(self.settings.stddev or 0.0) / self._grid.resolution) ** 2

    def _own_variance(self, node: Ints) -> Floats:
        made = self._own["count"][node]
        if self.settings.scheme is None:
            return np.asarray(self._known / np.maximum(made, 1))
        own: Floats = scheme_sample_variance(
            made, self._own["spread"][node], half_width=self._grid.span / 2
        )

        return np.asarray(own / np.maximum(made, 1))

    def _accept(self, reader: Ints, value: Floats, variance: Floats, count: Ints) -> Bools:
        made = self._own["count"][reader]
        own = self._own_variance(reader)
        significance = same_mean_significance(made, self.settings.significance)
        difference = self._own["mean"][reader] - value

        if self.settings.scheme is None:
            return same_mean_known(difference, own + variance, significance)
        return same_mean_welch(difference, own, made, variance, count, significance)

    def _words(self, target: Ints, reader: Ints) -> Words:
        """Hash of ordered pairs, by name: who joins later changes no draw."""
        return pair_words(
            *([self._names[node] for node in nodes.tolist()] for nodes in (target, reader))
        )

    def _released(self, made: list[dict[str, Any]], time: Floats) -> PairwiseReleases:
        none: dict[str, Any] = {"version": np.zeros(0, np.uint64), "variance": np.zeros(0)}
        names = ("position", "target", "reader", "index", "count", "total", "variance", "version")
        columns = {
            name: np.concatenate(
                [none.get(name, np.zeros(0, np.int64)), *[one[name] for one in made]]
            )
            for name in names
        }

        order = np.argsort(columns["position"], kind="stable")
        position, target, reader, index, count, total, variance, version = (
            columns[name][order] for name in names
        )

        agent = self._own["agent"] - 1
        released = self._own["released"]
        charge = numbered_within(target, released)
        released += np.bincount(target, minlength=len(released))
        self._dirty_own |= set(np.unique(target // BLOCK).tolist())
        release = self.settings.means
        grid = self._grid

        return PairwiseReleases(
            agent=agent[target],
            reader=agent[reader],
            index=index,
            charge=charge,
            count=count,
            total=total,
            mean=grid.mean(total, count),
            noise_variance=release.mean_variance(index, count),
            variance=variance * grid.resolution**2,
            version=version,
            time=time[position],
        )

    def _answer(  # noqa: PLR0917
        self,
        value: Floats,
        interval: ClassInterval,
        variance: Floats,
        own: Floats,
        size: Floats,
        level: float,
    ) -> AgentEstimates:
        grid = self._grid
        center, lower, upper = (
            np.clip(grid.lower + (x + grid.span // 2) * grid.resolution, grid.lower, grid.upper)
            for x in (value, *interval)
        )
        known = np.isfinite(own) & (variance > 0)

        return AgentEstimates(
            value=center,
            lower=lower,
            upper=upper,
            level=level,
            effective_class_size=np.where(known, own / np.where(known, variance, 1.0), 1.0),
            class_size=size,
            component=np.full(len(value), -1),
            membership=np.ones(len(value)),
        )


def _around(center: Floats, half: Floats) -> ClassInterval:
    return ClassInterval(center - half, center + half)


def pair_words(agent: Sequence[str], reader: Sequence[str]) -> Words:
    """Hash ordered pairs of names."""
    return keyed_owner_words([f"{a}{_BETWEEN}{r}" for a, r in zip(agent, reader, strict=True)])
