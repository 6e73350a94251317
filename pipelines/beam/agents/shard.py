"""The state of a shard of agents as plain objects: what its bytes become, and what becomes bytes again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from operators.agents import CHUNK, Agents, AgentsSettings, ReleaseBatch
from operators.noise import KeyedNoise
from operators.records import AnyInts, Bools, Floats, Ints, OwnSamples, ReleaseColumns, Words
from pipelines.beam.agents.bytes import names_of, narrow, opened, packed
from pipelines.beam.agents.records import AgentSamples, Tick
from pipelines.beam.agents.windows import AgentWindows
from pipelines.beam.ledger import SpendLedger

NEVER = -(2**62)
_PUBLIC = tuple(field.name for field in fields(ReleaseColumns))
_LATEST = tuple(name for name in _PUBLIC if name != "agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Private: what a window has made of a shard.

    Attributes
    ----------
    released : list of ReleaseBatch
        Releases that ask to be charged.
    own : OwnSamples
        Of the agents to answer, summed up.
    late, duplicates : int
        Samples that were not used.
    """

    released: list[ReleaseBatch]
    own: OwnSamples
    late: int
    duplicates: int


class AgentShard:
    """Private: the agents of a shard, and up to which window they have taken samples in.

    Parameters
    ----------
    settings : AgentsSettings
        How agents release.
    noise : KeyedNoise
        Of the deployment.
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    """

    def __init__(self, settings: AgentsSettings, noise: KeyedNoise, encoded: bytes = b"") -> None:
        self.agents = Agents(settings, noise)
        self.reached = NEVER
        self.words: Words = np.zeros((0, 2), np.uint64)
        self._places: dict[str, int] = {}
        if encoded:
            _, head, columns = opened(encoded, "shard")
            self.reached = head["reached"]
            self._add(names_of(columns).to_pylist(), columns.pop("words"))
            scalars = {name: np.array(head[name]) for name in ("version", "window")}
            for chunk in range(-(-self.agents.n_agents // CHUNK)):
                part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
                self.agents.restore_chunk(chunk, {**scalars, **{k: column[part] for k, column in columns.items()}})

    def to_bytes(self) -> bytes:
        """Give what makes the same shard again: plain arrays with a version and a checksum."""
        chunks = [self.agents.snapshot_chunk(c) for c in range(max(1, -(-self.agents.n_agents // CHUNK)))]
        scalars = {name: int(chunks[0].pop(name)) for name in ("version", "window")}
        columns = {k: np.concatenate([chunk[k] for chunk in chunks]) for k in chunks[0]}
        names = pa.array(self.agents.names, pa.large_string())
        return packed("shard", {"reached": self.reached, **scalars}, {**columns, "words": self.words}, names)

    def turn(
        self, samples: Sequence[AgentSamples], words: Callable[[list[str]], Words], tick: Tick, windows: AgentWindows,
        *, final_release: bool,
    ) -> Turn:  # fmt: skip
        """Take in the samples of a window and of windows before it, in the order of event time; release what is due."""
        agent, point, time = self._joined(samples, words)
        late = windows.number(time) <= self.reached if len(time) else np.zeros(0, np.bool_)
        order, again = _order(samples, time, late)
        if order is not None:
            agent, point, time = agent[order], point[order], time[order]
        released = [self.agents.update_points(agent, point, time)] if len(time) else []
        end = windows.end(tick.number)
        if end is not None:
            released.append(self.agents.advance(end))
        else:
            released.append(self.agents.advance(float(np.nextafter(tick.newest, np.inf))))
            if final_release:
                released.append(self.agents.release_now(tick.newest))
        self.reached = tick.number
        who = np.arange(self.agents.n_agents)
        if end is not None:
            heard = np.zeros(len(who), np.bool_)
            heard[agent] = True
            who = who[heard]
        return Turn(released=released, own=self.agents.own(who), late=int(np.count_nonzero(late)), duplicates=again)

    def _joined(
        self, samples: Sequence[AgentSamples], words: Callable[[list[str]], Words]
    ) -> tuple[AnyInts, AnyInts, Floats]:
        """Join batches; number their agents as the shard does."""
        agents: list[AnyInts] = [np.zeros(0, np.uint8)]
        for part in samples:
            names = part.names.to_pylist()
            fresh = [name for name in names if name not in self._places]
            if fresh:
                self._add(fresh, words(fresh))
            places = np.fromiter(map(self._places.__getitem__, names), np.int64, len(names))
            agents.append(narrow(places).take(part.agent))
        points: list[AnyInts] = [np.zeros(0, np.uint8), *(part.point for part in samples)]
        return np.concatenate(agents), np.concatenate(points), np.concatenate([np.zeros(0), *(p.time for p in samples)])

    def _add(self, names: list[str], words: Words) -> None:
        self._places.update(zip(names, range(len(self._places), len(self._places) + len(names)), strict=True))
        self.agents.add_agents(names)
        self.words = np.concatenate([self.words, words])


class ReleaseLedger:
    """What each agent of a shard was charged, and the releases that were given for it; charged before they leave.

    The state is two things: how many releases each agent was charged, which says at once whether a release is new, and
    the rows, which are only ever added and are read when one is not.

    Parameters
    ----------
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    rows : callable
        Reads the rows that were added so far.

    Notes
    -----
    **Privacy.** The same release id with the same input version is the stored release again and costs nothing. With
    another version it would be a second look at the agent's data, and is refused.
    """

    def __init__(self, encoded: bytes, rows: Callable[[], Iterable[bytes]]) -> None:
        self._spend = SpendLedger(encoded)
        self._rows = rows

    def to_bytes(self) -> bytes:
        """Give how much was charged."""
        return self._spend.to_bytes()

    def charge(self, batch: ReleaseBatch, words: Words) -> tuple[ReleaseBatch, Bools, bytes | None]:
        """Charge releases; give what may leave, which were refused, and the row to add.

        Parameters
        ----------
        batch : ReleaseBatch
            Releases, each agent's in their order.
        words : uint64 array (n, 2)
            Hash of the agent of each.

        Raises
        ------
        ValueError
            If a new release is not its agent's next.
        """
        releases = batch.releases
        new = releases.index > self._spend.spent(words)
        refused = np.zeros(len(releases), np.bool_)
        if not new.all():
            batch, refused = self._stored(batch, words, ~new)
        row = None
        if new.any():
            order = np.flatnonzero(new)[np.argsort(releases.index[new], kind="stable")]
            for index in np.unique(releases.index[order]).tolist():
                who = words[order[releases.index[order] == index]]
                if np.any(self._spend.spent(who) != index - 1):
                    raise ValueError("release must be its agent's next one in the ledger, got a later one")
                self._spend.charge(who)
            row = _row(batch, words, new)
        return batch, refused, row

    def _stored(self, batch: ReleaseBatch, words: Words, again: Bools) -> tuple[ReleaseBatch, Bools]:
        """Put stored releases in the place of those that were charged before; refuse those of another input."""
        stored: dict[tuple[int, int, int], tuple[dict[str, np.ndarray], int]] = {}
        for encoded in self._rows():
            _, _, columns = opened(encoded, "charged")
            index = columns["index"].tolist()
            for place, (first, second) in enumerate(columns["words"].tolist()):
                stored[first, second, index[place]] = columns, place
        columns = {name: getattr(batch.releases, name).copy() for name in _LATEST}
        time, refused = batch.time.copy(), np.zeros(len(again), np.bool_)
        for at in np.flatnonzero(again).tolist():
            found, place = stored[int(words[at, 0]), int(words[at, 1]), int(batch.releases.index[at])]
            if found["version"][place] != batch.version[at]:
                refused[at] = True
                continue
            time[at] = found["time"][place]
            for name in _LATEST:
                columns[name][at] = found[name][place]
        releases = ReleaseColumns(agent=batch.releases.agent, **columns)
        return ReleaseBatch(releases=releases, version=batch.version, time=time, exhausted=batch.exhausted), refused


def _row(batch: ReleaseBatch, words: Words, new: Bools) -> bytes:
    columns = {name: getattr(batch.releases, name)[new] for name in _LATEST}
    return packed(
        "charged", {}, {**columns, "version": batch.version[new], "time": batch.time[new], "words": words[new]}
    )


def _again(key: Words) -> Bools:
    """Say which samples repeat the id of one before them; 0 is no id."""
    order = np.argsort(key, kind="stable")
    again = np.zeros(len(key), np.bool_)
    again[order[1:]] = key[order[1:]] == key[order[:-1]]
    return np.asarray(again & (key != 0))


def _order(samples: Sequence[AgentSamples], time: Floats, late: Bools) -> tuple[Ints | None, int]:
    """Give the samples that count, by event time, id and position, and how many repeat an id.

    No order: all of them count, as they stand.
    """
    keyed = any(len(part.key) for part in samples)
    if not keyed and not late.any() and np.all(time[1:] > time[:-1]):
        return None, 0
    position = np.concatenate([part.position for part in samples])
    if not keyed:
        tied = (time[1:] == time[:-1]) & (position[1:] >= position[:-1])
        if not late.any() and np.all(tied | (time[1:] > time[:-1])):
            return None, 0
        order = np.lexsort((position, time))
        return order[~late[order]], 0
    key = np.concatenate([part.key if len(part.key) else np.zeros(len(part), np.uint64) for part in samples])
    order = np.lexsort((position, key, time))
    order = order[~late[order]]
    again = _again(key[order])
    return order[~again], int(np.count_nonzero(again))
