"""The state of a federation whose agents ask each other.

What its bytes become, and what becomes bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from meanstream.lab.papers.colme.pairwise_stream import PairwiseReleases, PairwiseStream, pair_words
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.noise.keyed import NoiseSource
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns, Words
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.element_types.beam_samples import repeated_samples
from meanstream.pipelines.beam.element_types.columns_coder import register_elements
from meanstream.pipelines.beam.element_types.packed import names_of_packed, packed, unpacked
from meanstream.streaming.events.wire import release_ids

NEVER = -(2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTurn:
    """Private: what a window has made of a federation.

    Attributes
    ----------
    released : ReleaseBatch
        Releases that ask to be charged; `agent` is who was queried.
    reader : int array (n,)
        Who asked.
    unused : dict of str to int
        Samples that were not used, by reason.
    """

    released: ReleaseBatch
    reader: Ints
    unused: dict[str, int]


class FederationShard:
    """Private: a federation, and the agents that must learn alone.

    Parameters
    ----------
    settings : PairwiseStreamSettings
    noise : NoiseSource
        Of the deployment.
    capacity : int
        Largest number of agents.
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    """

    def __init__(
        self,
        settings: PairwiseStreamSettings,
        noise: NoiseSource,
        capacity: int,
        encoded: bytes = b"",
    ) -> None:
        self.stream = PairwiseStream(settings, noise, capacity=capacity)
        self.reached = NEVER
        self.names: list[str] = []
        self.alone: Bools = np.zeros(0, np.bool_)
        self._release = settings.means
        self._capacity = capacity

        if encoded:
            head, columns = unpacked(encoded, "federation")
            self.names = names_of_packed(columns).to_pylist()
            self.reached = head["reached"]
            self.alone = columns.pop("alone") > 0
            self.stream.restore_snapshot(columns, self.names)

        self._number = {name: number for number, name in enumerate(self.names)}

    def to_bytes(self) -> bytes:
        """Give what makes the same again: plain arrays with a version and a checksum."""
        names = pa.array(self.names, pa.large_string())
        columns = {**self.stream.snapshot(), "alone": self.alone.astype(np.uint8)}
        return packed("federation", {"reached": self.reached}, columns, names)

    def turn(self, samples: Sequence[AgentSamples], number: int, windows: AgentWindows) -> PairTurn:
        """Take in the samples of a window, in the order of event time.

        Each lets its agent query.
        """
        agent, point, time, unused = self._in_order(samples, windows)
        self.reached = max(self.reached, number)  # a window that was taken stays closed
        made = self.stream.take_points(agent, point, time, self.names)
        return PairTurn(released=self._batch(made), reader=made.reader, unused=unused)

    def words(self, turn: PairTurn) -> Words:
        """Hash of the ordered pair of each release."""
        agent = turn.released.releases.agent
        return pair_words(*([self.names[a] for a in who.tolist()] for who in (agent, turn.reader)))

    def _in_order(
        self, samples: Sequence[AgentSamples], windows: AgentWindows
    ) -> tuple[Ints, Ints, Floats, dict[str, int]]:
        """Sort the samples that count as the engine does, ties by name.

        Say how many others there are, and why.
        """
        if not samples:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), {}
        names = [part.names.to_pylist() for part in samples]
        every = sorted({name for some in names for name in some})
        place = {name: at for at, name in enumerate(every)}
        codes = [np.array([place[name] for name in some], np.int64) for some in names]
        agent = np.concatenate([of[part.agent] for of, part in zip(codes, samples, strict=True)])
        point, time, position = (
            np.concatenate([getattr(part, name) for part in samples])
            for name in ("point", "time", "position")
        )
        keys = [part.key if len(part.key) else np.zeros(len(part), np.uint64) for part in samples]
        key = np.concatenate(keys)

        late = windows.number(time) <= self.reached
        order = np.lexsort((agent, position, key, time))
        order = order[~late[order]]
        again = repeated_samples(agent[order], key[order])
        order = order[~again]
        numbers = self._numbers(agent[order], every)
        beyond = numbers < 0
        counts = {"late": late, "duplicate": again, "too_many_agents": beyond}
        unused = {reason: int(which.sum()) for reason, which in counts.items() if which.any()}
        order, numbers = order[~beyond], numbers[~beyond]

        return numbers, point[order].astype(np.int64), time[order], unused

    def _numbers(self, agent: Ints, every: list[str]) -> Ints:
        """Give agents their numbers, new ones in their order; -1 where there is no room."""
        found, first = np.unique(agent, return_index=True)
        of = np.full(len(every), -1, np.int64)
        for code in found[np.argsort(first)].tolist():
            name = every[code]
            if name not in self._number and len(self.names) < self._capacity:
                self._number[name] = len(self.names)
                self.names.append(name)

            of[code] = self._number.get(name, -1)

        self.alone = np.concatenate(
            [self.alone, np.zeros(len(self.names) - len(self.alone), np.bool_)]
        )
        return of[agent]

    def _batch(self, made: PairwiseReleases) -> ReleaseBatch:
        columns = ReleaseColumns(
            agent=made.agent,
            index=made.index,
            count=made.count,
            total=made.total,
            mean=made.mean,
            noise_variance=made.noise_variance,
        )
        none = np.zeros(0, np.int64)

        return ReleaseBatch(releases=columns, version=made.version, time=made.time, exhausted=none)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairBatch:
    """Each release for its reader and for no one else: what agents told those who asked them.

    Attributes
    ----------
    agent, reader : pyarrow array of strings (n,)
        Who was queried, and who asked.
    number : int
        Of the window at whose end they were made.
    releases : ReleaseColumns
        `index` counts those of one agent to one reader.
    time : float array (n,)
        Event time at which each became due, seconds since the epoch.
    """

    agent: pa.Array
    reader: pa.Array
    number: int
    releases: ReleaseColumns
    time: Floats

    def __len__(self) -> int:
        return len(self.time)


register_elements(pairs=PairBatch)


def pairwise_release_columns(batch: ReleaseBatch, which: Ints) -> ReleaseColumns:
    """Select releases; their agents are named next to them, in the same order."""
    return replace(batch.releases.take(which), agent=np.arange(len(which)))


def pairwise_release_ids(
    agent: list[str], reader: list[str], index: list[int], *, deployment: str | None
) -> list[str]:
    """Give the ids of pairwise releases.

    Deployment, who was queried, who asked, which of the one to the other it is.

    Examples
    --------
    >>> pairwise_release_ids(["tail 7"], ["N14228"], [3], deployment="pairs")
    ['pairs/tail%207:N14228:3']
    """
    places = list(range(len(agent)))
    asked = [
        one.removesuffix(":0")
        for one in release_ids(agent, places, [0] * len(agent), deployment=deployment)
    ]

    return [
        f"{one}:{told}" for one, told in zip(asked, release_ids(reader, places, index), strict=True)
    ]
