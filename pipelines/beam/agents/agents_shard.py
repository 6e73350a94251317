"""The state of a shard of agents as plain objects.

What its bytes become, and what becomes bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.admission import (
    COUNTS,
    TOO_MANY,
    UNCOUNTED,
    Fates,
    admission_columns,
)
from meanstream.operators.agents.agents import CHUNK, Agents, AgentsSettings, ReleaseBatch
from meanstream.operators.agents.own_samples import OwnAtMoments
from meanstream.operators.agents.release_times import Counts
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import AnyInts, Floats, Ints, OwnSamples, Words
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentSamples,
    Tick,
    records_of_agents,
    samples_with_own_names,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.charges import ShardSpend
from meanstream.pipelines.beam.agents.shard_turns import (
    names_together,
    releases_together,
    samples_order,
    steps_by_agent,
    steps_by_window,
)
from meanstream.pipelines.beam.element_types.packed import (
    SHARD,
    names_of_packed,
    pack_narrow,
    packed,
    packed_narrow,
    unpacked,
)
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.keyed_state.journal import PART, StateJournal

NEVER = -(2**62)
FORGOTTEN = "forgotten"
"""Why samples of an agent that was forgotten do not count."""
_PERSON = ("person agent", "person")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Private: what a window has made of a shard.

    Attributes
    ----------
    released : list of ReleaseBatch
        Releases that ask to be charged.
    own : OwnSamples
        Of the agents to answer, summed up at the end of each window that they have samples in.
    part : int array
        The window of each.
    late, duplicates : int
        Samples that were not used.
    uncounted : dict of str to int
        Samples that were not used because of a person's limit, or of the greatest number of agents,
        by reason.
    """

    released: list[ReleaseBatch]
    own: OwnSamples
    part: Ints
    late: int
    duplicates: int
    uncounted: dict[str, int]


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
    changes : sequence of bytes
        As `save` has added them to it since, in their order.
    most : int
        How many agents it takes.
    charges : SpendLedger, optional
        What agents were charged that the bytes say nothing of, as they were lost.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        noise: KeyedNoise,
        encoded: bytes = b"",
        changes: Sequence[bytes] = (),
        *,
        most: int = MAX_AGENTS,
        charges: SpendLedger | None = None,
    ) -> None:
        self._most = most
        # Windows are taken in agent by agent, and saved so: a vote of a shard would need their
        # order.
        self.agents = Agents(settings, noise, votes_alone=True)
        self.reached = NEVER
        self.words: Words = np.zeros((0, 2), np.uint64)
        self.spend = ShardSpend()
        self._before = charges or SpendLedger(b"")
        self._places: dict[str, int] = {}
        self._forgotten: list[int] = []
        self._touched: list[AnyInts] = []
        self._counted: list[dict[str, Words]] = []  # of persons

        # The state is a snapshot, and changes since.
        if encoded:
            self._restore(encoded)

        for change in changes:
            self._take_in(change)

        # Names from here on are new, and are saved with the next change.
        self._saved = self.agents.n_agents

    def _restore(self, encoded: bytes) -> None:
        head, columns = unpacked(encoded, SHARD)
        self.reached = head["reached"]
        self._forgotten = list(head.get("forgotten", []))
        self._before = SpendLedger(columns.pop("before").tobytes())

        # Agents first: their rows are put in their places afterwards.
        self._add(names_of_packed(columns).to_pylist(), columns.pop("words"))
        self.spend.rounds[:] = columns.pop("spent")

        if self.agents.persons is not None:
            self.agents.persons.restore(
                0, {name: columns.pop(f"person {name}") for name in ("key", "count")}
            )

        scalars = {name: np.array(head[name]) for name in ("version", "window")}

        # Chunk by chunk, as the engine saves them.
        for chunk in range(-(-self.agents.n_agents // CHUNK)):
            part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            self.agents.restore_chunk(
                chunk, {**scalars, **{k: column[part] for k, column in columns.items()}}
            )

    def to_bytes(self) -> bytes:
        """Give what makes the same shard again: plain arrays with a version and a checksum."""
        # The same columns as the engine's rows, and what was spent before.
        columns = self.agents.rows(slice(0, self.agents.n_agents))
        version = self.agents.snapshot_chunk(0, copy=False)["version"]
        scalars = {"version": int(version), "window": int(columns.pop("window"))}
        columns |= {
            "spent": self.spend.rounds,
            "before": np.frombuffer(self._before.to_bytes(), np.uint8),
        }
        names = pa.array(self.agents.names, pa.large_string())

        if self.agents.persons is not None:
            columns |= {
                f"person {name}": column for name, column in self.agents.persons.whole().items()
            }

        head: dict[str, Any] = {"reached": self.reached, **scalars}

        # Nobody was forgotten in nearly all shards: they need no entry.
        if self._forgotten:
            head["forgotten"] = self._forgotten

        return packed(SHARD, head, {**packed_narrow(columns), "words": self.words}, names)

    def forget(self, name: str, words: Callable[[list[str]], Words]) -> None:
        """Leave of an agent what its releases have shown, and its spent budget.

        Of one without releases, nothing.
        """
        # An agent that is unknown, or was forgotten before, leaves nothing more to drop.
        place = self._places.get(name)
        if place is None or place in self._forgotten:
            return
        self.agents.forget(np.array([place]))

        # What was released stays charged: the name stays, and its samples count no more.
        if self.spend.rounds[place]:
            self._forgotten.append(place)
            return

        # Without a release even the name goes; its place stays.
        other = f"forgotten-{place}"
        while other in self._places:  # agents choose their names
            other += "-"

        del self._places[name]
        self._places[other] = place
        self.agents.names[place] = other
        self.words[place] = words([other])[0]

    def save(self, journal: StateJournal) -> None:
        """Write what has changed since it was read, or written."""
        # A flag for each agent: samples are many, and sorting them is slower.
        flags = np.zeros(self.agents.n_agents, np.bool_)
        for agents in self._touched:  # one entry for each sample: not to be sorted
            flags[agents] = True

        # Few changed agents are written alone; many, as a new snapshot.
        touched = np.flatnonzero(flags)
        few = PART * len(touched) <= self.agents.n_agents
        journal.save(self._change(touched) if few else None, self.to_bytes)
        self._touched = []
        self._counted = []
        self._saved = self.agents.n_agents

    def _change(self, touched: Ints) -> bytes:
        """Give the rows of some agents, of whom those that are new have their names."""
        # Only rows of these agents, and names that the last snapshot lacks.
        rows = self.agents.rows(touched)
        head = {"reached": self.reached, "window": int(rows.pop("window"))}
        columns = {"place": touched, "spent": self.spend.rounds[touched]}
        columns |= {f"row {name}": column for name, column in rows.items()}

        if self.agents.persons is not None:
            columns |= {
                n: np.concatenate([np.zeros(0, np.uint64), *(c[n] for c in self._counted)])
                for n in _PERSON
            }

        names = pa.array(self.agents.names[self._saved :], pa.large_string())
        return packed(
            "shard change",
            head,
            {**packed_narrow(columns), "words": self.words[self._saved :]},
            names,
        )

    def _take_in(self, change: bytes) -> None:
        """Put rows in place of what was known of their agents."""
        head, columns = unpacked(change, "shard change")
        self.reached = head["reached"]
        self._add(names_of_packed(columns).to_pylist(), columns["words"])
        place = columns["place"].astype(np.int64)
        self.spend.rounds[place] = columns["spent"]
        rows = {
            name.removeprefix("row "): column
            for name, column in columns.items()
            if name.startswith("row ")
        }
        self.agents.put_rows(place, {**rows, "window": np.array(head["window"])})

        if self.agents.persons is not None:
            self.agents.persons.take(*(columns[name] for name in _PERSON))

    def turn(
        self,
        samples: Sequence[AgentSamples],
        words: Callable[[list[str]], Words],
        ticks: Sequence[Tick],
        windows: AgentWindows,
        *,
        final_release: bool,
    ) -> Turn:
        """Take in the samples of windows, in the order of event time.

        Release what is due; the last tick is the newest.

        What it releases is what it would release with a turn for each window. A sample of another
        window is late: its window has been released without it. A released window stays closed,
        even where its tick comes again.
        """
        # All windows up to the newest tick are taken in one turn.
        tick = ticks[-1]
        number = max(tick.number, self.reached)
        samples, names, numbers, too_many = self._admitted(samples, words)
        agent, point, time = self._joined(samples, names, numbers)
        part = windows.number(time)

        # Samples of forgotten agents, and of windows that were released, do not count.
        gone = (
            np.isin(agent, self._forgotten) if self._forgotten else np.zeros(len(agent), np.bool_)
        )
        open_ = [one.number for one in ticks if one.number > self.reached]
        late = ~(part == open_[0] if len(open_) == 1 else np.isin(part, open_)) & ~gone

        # An id counts once in its window.
        order, again = samples_order(samples, agent, time, late | gone, part)
        person = self._persons(samples)

        if order is not None:
            agent, point, time, part = agent[order], point[order], time[order], part[order]
            person = None if person is None else person[order]

        # Windows that are answered need each agent's state at their end.
        end = windows.end(number)
        taken = self._taken(agent, point, time, person, part, answers=end is not None)
        released = taken.released
        fates = taken.fates

        # Schedules of event time release at the end of the window.
        if end is not None:
            released.append(self.agents.advance(end))
        else:
            # The last tick has no end: what came up to its newest sample is released.
            released.append(self.agents.advance(float(np.nextafter(tick.newest, np.inf))))
            if final_release:
                released.append(self.agents.release_now(tick.newest))

        self.reached = number
        self._note([agent, *(batch.releases.agent for batch in released)], agent, person, fates)
        own = taken.own
        part = taken.part

        # Without answers per window, agents have what they have after the turn.
        if own is None:
            own = self.agents.own()
            part = np.full(self.agents.n_agents, tick.number)

        # Agents without a sample have nothing to say.
        told = np.flatnonzero(own.count)
        uncounted = (
            {}
            if fates is None
            else {why: int((fates == fate).sum()) for fate, why in UNCOUNTED.items()}
        )
        uncounted[TOO_MANY] = too_many
        uncounted[FORGOTTEN] = int(np.count_nonzero(gone))

        return Turn(
            released=list(releases_together(released)),
            own=records_of_agents(own, told, own.agent[told]),
            part=part[told],
            late=int(np.count_nonzero(late)),
            duplicates=again,
            uncounted=uncounted,
        )

    def _note(
        self, touched: list[AnyInts], agent: AnyInts, person: Words | None, fates: Fates | None
    ) -> None:
        """Note whose rows have changed, and which samples of persons have counted, to be saved."""
        self._touched += touched
        if person is not None and fates is not None:
            counts = fates == COUNTS
            self._counted.append(
                {"person agent": self.words[agent[counts], 0], "person": person[counts]}
            )

    def _taken(
        self,
        agent: AnyInts,
        point: AnyInts,
        time: Floats,
        person: Words | None,
        part: Ints,
        *,
        answers: bool,
    ) -> _Taken:
        """Take samples in; where windows are answered, note what agents have at the end of each."""
        if answers:
            return self._window_by_window(agent, point, time, person, part)
        released = [self.agents.update_points(agent, point, time, person)] if len(time) else []
        return _Taken(released, released[0].fates if released else None)

    def _window_by_window(
        self, agent: AnyInts, point: AnyInts, time: Floats, person: Words | None, part: Ints
    ) -> _Taken:
        """Take in samples of several windows, and note what agents have at the end of each.

        What one had, in blocks, cannot be computed backwards from what it has. Event time that
        makes releases due, and the number of all persons, join the agents: then windows are taken
        in one after the other.
        """
        # Agents do not touch each other unless persons or windows of the schedule connect them.
        alone = isinstance(self.agents.settings.times, Counts) and person is None
        steps = (
            steps_by_agent(agent, part, self.agents.n_agents) if alone else steps_by_window(part)
        )
        released = list[ReleaseBatch]()
        fates = np.zeros(len(part), np.int8)
        owns = OwnAtMoments(self.agents.settings)
        owns.note(self.agents.columns, np.zeros(0, np.int64))
        parts = [np.zeros(0, np.int64)]

        for here in steps:
            whose = None if person is None else person[here]
            released.append(self.agents.update_points(agent[here], point[here], time[here], whose))
            found = released[-1].fates
            if found is not None:
                fates[here] = found

            # Only samples that count move an agent's own state.
            counted = here if found is None else here[found == COUNTS]
            who, first = np.unique(agent[counted], return_index=True)
            owns.note(self.agents.columns, who.astype(np.int64))
            parts.append(part[counted][first])

        counts = None if person is None else fates
        return _Taken(released, counts, owns.joined(), np.concatenate(parts))

    def _persons(self, samples: Sequence[AgentSamples]) -> Words | None:
        """Join whose samples they are, where that decides which of them count."""
        if self.agents.persons is None:
            return None
        return np.concatenate([np.zeros(0, np.uint64), *(part.person for part in samples)])

    def _admitted(
        self, samples: Sequence[AgentSamples], words: Callable[[list[str]], Words]
    ) -> tuple[Sequence[AgentSamples], list[str], list[Ints], int]:
        """Leave out samples of agents without room.

        Give the rest, their names and numbers, and how many are out.
        """
        names, numbers = names_together(samples)

        # Nearly always there is room for all.
        room = self._most - len(self._places)
        newcomers = [name for name in names if name not in self._places]
        if len(newcomers) <= room:
            self._add(newcomers, words(newcomers))
            return samples, names, numbers, 0

        # Who came first in event time has room; names decide among equals.
        fresh = np.array([name not in self._places for name in names], np.bool_)
        agents = [number.take(part.agent) for number, part in zip(numbers, samples, strict=True)]
        first = np.full(len(names), np.inf)
        for agent, part in zip(agents, samples, strict=True):
            np.minimum.at(first, agent, part.time)

        places = np.flatnonzero(fresh)
        goes = ~fresh
        goes[places] = admission_columns(first[places], words(newcomers), max(room, 0))

        kept = [goes[agent] for agent in agents]
        inside = [
            samples_with_own_names(part.take(good))
            for part, good in zip(samples, kept, strict=True)
            if good.any()
        ]
        names, numbers = names_together(inside)
        newcomers = [name for name in names if name not in self._places]
        self._add(newcomers, words(newcomers))

        return inside, names, numbers, sum(int(np.count_nonzero(~good)) for good in kept)

    def _joined(
        self, samples: Sequence[AgentSamples], names: list[str], numbers: list[Ints]
    ) -> tuple[AnyInts, AnyInts, Floats]:
        """Join batches; number their agents as the shard does."""
        # Places as narrow integers: they are joined and sorted often.
        places = pack_narrow(
            np.fromiter(map(self._places.__getitem__, names), np.int64, len(names))
        )
        agents: list[AnyInts] = [np.zeros(0, np.uint8)]
        agents += [
            places.take(number).take(part.agent)
            for number, part in zip(numbers, samples, strict=True)
        ]
        points: list[AnyInts] = [np.zeros(0, np.uint8), *(part.point for part in samples)]

        return (
            np.concatenate(agents),
            np.concatenate(points),
            np.concatenate([np.zeros(0), *(p.time for p in samples)]),
        )

    def _add(self, names: list[str], words: Words) -> None:
        if not names:
            return
        self._places.update(
            zip(names, range(len(self._places), len(self._places) + len(names)), strict=True)
        )
        self.agents.add_agents(names, words)
        self.words = np.concatenate([self.words, words])
        self.spend.rounds = np.concatenate([self.spend.rounds, self._before.spent(words)])


@dataclass(frozen=True, slots=True)
class _Taken:
    """What taking samples in has released, which of them count, and perhaps who had what when."""

    released: list[ReleaseBatch]
    fates: Fates | None
    own: OwnSamples | None = None
    part: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
