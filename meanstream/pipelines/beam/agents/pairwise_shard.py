"""The state of a federation whose agents ask each other: what its bytes become, and what becomes bytes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.noise.keyed import NoiseSource
from meanstream.operators.papers.colme.pairwise_federation import FederationSettings, PairReleases, PairwiseFederation
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns, Words
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.element_types.beam_samples import repeated_samples
from meanstream.pipelines.beam.element_types.packed import packed, unpacked

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
    """Private: a federation, the samples that wait for others' samples, and who must learn alone.

    Parameters
    ----------
    settings : FederationSettings
    noise : NoiseSource
        Of the deployment.
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    """

    def __init__(self, settings: FederationSettings, noise: NoiseSource, encoded: bytes = b"") -> None:
        self.settings = settings
        self.federation = PairwiseFederation(settings, noise)
        self.reached = NEVER
        self.alone: Bools = np.zeros(len(settings.agents), np.bool_)
        self._place = {name: place for place, name in enumerate(settings.agents)}
        self._queue: dict[str, np.ndarray] = {
            "agent": np.zeros(0, np.int64),
            "point": np.zeros(0, np.int64),
            "time": np.zeros(0),
        }
        if encoded:
            head, columns = unpacked(encoded, "federation")
            self.reached, self.alone = head["reached"], columns.pop("alone") > 0
            self._queue = {name: columns.pop(f"queue {name}") for name in self._queue}
            shape = head["shape"]
            state = {name: column.reshape(shape[name]) for name, column in columns.items()}
            self.federation.restore({**head["plain"], **state})

    def to_bytes(self) -> bytes:
        """Give what makes the same again: plain arrays with a version and a checksum."""
        state = self.federation.snapshot()
        arrays = {name: np.asarray(one) for name, one in state.items() if isinstance(one, np.ndarray)}
        plain = {name: one for name, one in state.items() if name not in arrays}
        shape = {name: list(one.shape) for name, one in arrays.items()}
        columns = {name: _bytes_for(one.ravel()) for name, one in arrays.items()}
        queue = {f"queue {name}": column for name, column in self._queue.items()}
        head = {"reached": self.reached, "plain": plain, "shape": shape}
        return packed("federation", head, {**columns, **queue, "alone": self.alone.astype(np.uint8)})

    def turn(self, samples: Sequence[AgentSamples], number: int, windows: AgentWindows) -> PairTurn:
        """Take in the samples of a window, in the order of event time; step as often as everyone has a sample."""
        unused = self._enqueue(samples, windows)
        self.reached = max(self.reached, number)  # a window that was taken stays closed
        agent, n = self._queue["agent"], len(self.settings.agents)
        steps = int(np.bincount(agent, minlength=n).min())
        order = np.argsort(agent, kind="stable")  # within an agent they stand in their order
        starts = np.searchsorted(agent[order], np.arange(n))
        used = order[starts + np.arange(steps)[:, None]] if steps else np.zeros((0, n), np.int64)
        point, time = self._queue["point"][used], self._queue["time"][used]
        made = [self.federation.step_points(points) for points in point]
        when = np.repeat(time.max(axis=1) if steps else np.zeros(0), [len(one) for one in made])
        left = np.ones(len(agent), np.bool_)
        left[used.ravel()] = False
        self._queue = {name: column[left] for name, column in self._queue.items()}
        return PairTurn(released=self._batch(made, when), reader=_joined([one.reader for one in made]), unused=unused)

    def words(self, turn: PairTurn) -> Words:
        """Hash of the ordered pair of each release."""
        return self.federation.words(turn.released.releases.agent, turn.reader)

    def _enqueue(self, samples: Sequence[AgentSamples], windows: AgentWindows) -> dict[str, int]:
        """Put samples behind those that wait; say how many were not used, and why."""
        if not samples:
            return {}
        agent = np.concatenate([self._numbers(part) for part in samples])
        point, time, position = (
            np.concatenate([getattr(part, name) for part in samples]) for name in ("point", "time", "position")
        )
        keys = [part.key if len(part.key) else np.zeros(len(part), np.uint64) for part in samples]
        key = np.concatenate(keys)
        late, unknown = windows.number(time) <= self.reached, agent < 0
        order = np.lexsort((position, key, time))
        order = order[~(late | unknown)[order]]
        again = repeated_samples(agent[order], key[order])
        order = order[~again]
        fresh = {"agent": agent[order], "point": point[order].astype(np.int64), "time": time[order]}
        self._queue = {name: np.concatenate([self._queue[name], column]) for name, column in fresh.items()}
        counts = {"late": late & ~unknown, "unknown_agent": unknown, "duplicate": again}
        return {reason: int(which.sum()) for reason, which in counts.items() if which.any()}

    def _numbers(self, part: AgentSamples) -> Ints:
        names = part.names.to_pylist()
        return np.array([self._place.get(name, -1) for name in names], np.int64)[part.agent]

    def _batch(self, made: list[PairReleases], time: Floats) -> ReleaseBatch:
        release = self.settings.release
        index, count, total = (_joined([getattr(one, name) for one in made]) for name in ("index", "count", "total"))
        per_sum = release.mechanism.noise_variance(np.maximum(index, 1)) * release.fresh.variance + 1 / 12
        n = np.maximum(count, 1)
        columns = ReleaseColumns(
            agent=_joined([one.agent for one in made]),
            index=index,
            count=count,
            total=total,
            mean=release.grid.mean(total, n),
            noise_variance=per_sum * release.grid.resolution**2 / n.astype(np.float64) ** 2,
        )
        version = np.concatenate([np.zeros(0, np.uint64), *[one.version for one in made]])
        return ReleaseBatch(releases=columns, version=version, time=time, exhausted=np.zeros(0, np.int64))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _bytes_for(column: np.ndarray) -> Any:
    return column.astype(np.uint8) if column.dtype == np.bool_ else column
