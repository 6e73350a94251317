"""Private to public: what the agents of a shard release, under a ledger that is kept with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from time import time as now
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.agents.admission import TOO_MANY, UNCOUNTED
from meanstream.operators.agents.agents import AgentsSettings, ReleaseBatch
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    ForgetAgent,
    ForShard,
    OwnBatch,
    Tick,
    numbered_anew,
    records_of_agents,
)
from meanstream.pipelines.beam.agents.agents_shard import FORGOTTEN, AgentShard, Turn
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.charges import ReleaseLedger, charges_of_rows
from meanstream.pipelines.beam.agents.waiting_samples import (
    ShardTurns,
    forget_waiting_samples,
    take_waiting_samples,
)
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.journal import StateJournal
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import with_window_time
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.agents.agents_releases import (
    DriftsOfReleases,
    release_budget_lines,
    release_refusal_lines,
    release_rows,
)
from meanstream.streaming.events.wire import BudgetEvent, DriftEvent, Refusal
from meanstream.streaming.store.secret_source import noise_from_secret

OWN = "own"
NOTICES = "notices"
REFUSALS = "refusals"
DRIFTS = "drifts"


class ReleaseShard(ShardTurns):
    """Private to public: the agents of a shard, their samples and their ledger, as state.

    Samples wait until event time has passed the end of a window, so that their order does not
    depend on their arrival.

    **Privacy.** Noise is a function of (secret, release id, input): what is executed again releases
    the same again. A release is charged in the state, which is committed with what leaves, before
    it leaves.
    """

    VALUES = ("agents", "head")
    BAGS = ("changes", "ledger")
    TIMER = "due"

    def __init__(
        self,
        settings: AgentsSettings,
        windows: AgentWindows,
        secret: SecretLocation,
        owner: StateOwner,
        *,
        final_release: bool,
        most: int = MAX_AGENTS,
    ) -> None:
        super().__init__(owner, windows)
        self._most = most  # agents of a shard
        self._settings = settings
        self._secret = secret
        self._final_release = final_release

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._noise: KeyedNoise | None = None
        counted = ("agents", "exhausted", "releases", "refusals", "drifts", "drift_warnings")
        self._counters = {name: metric_counter(name) for name in counted}
        reasons = ("late", "duplicate", TOO_MANY, FORGOTTEN, *UNCOUNTED.values())
        self._rejected = {reason: metric_counter("rejected_", reason) for reason in reasons}
        self._lasted = DistributionOf("batch_milliseconds")
        self._lag = DistributionOf("release_lag_milliseconds")

    def take(self, element: ForShard, cells: Cells) -> None:
        """Keep samples until their window has ended; forget an agent at once."""
        if not isinstance(element, ForgetAgent):
            super().take(element, cells)
            return

        forget_waiting_samples(cells.waiting, element.agent)
        journal = StateJournal(cells.agents, cells.changes, cells.head)
        shard = self._shard(cells.key, journal, cells.ledger)
        shard.forget(element.agent, keyed_owner_words)
        journal.save(None, shard.to_bytes)
        self._remember(cells.key, journal.mark, shard)

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        return self._windows.released(number)

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[Any]:
        """Release what is due at the end of these windows, all of them in one turn."""
        began = perf_counter()
        tick = due[-1]

        # All that waits for the windows that have ended.
        samples = take_waiting_samples(cells.waiting, tick.number, self._windows)
        journal = StateJournal(cells.agents, cells.changes, cells.head)
        shard = self._shard(cells.key, journal, cells.ledger)
        known = shard.agents.n_agents
        rows = ReleaseLedger(shard.spend, cells.ledger.read)
        turn = shard.turn(
            samples, keyed_owner_words, due, self._windows, final_release=self._final_release
        )
        self._count(turn, tick)

        # A charge is written before the release leaves; the same release twice is refused.
        for batch in turn.released:
            who = batch.releases.agent
            charged, refused, row = rows.charge(batch, shard.words[who], who)
            if row is not None:
                cells.ledger.add(row)

            yield from self._let_out(shard, charged, refused, tick)

        if len(turn.own):
            yield self._own(shard, turn, due)

        # The shard is saved once a turn, as what changed or as a whole.
        shard.save(journal)
        self._remember(cells.key, journal.mark, shard)
        self._counters["agents"].inc(shard.agents.n_agents - known)
        self._lasted.update(round(1000 * (perf_counter() - began)))

    def _count(self, turn: Turn, tick: Tick) -> None:
        for reason, unused in (
            ("late", turn.late),
            ("duplicate", turn.duplicates),
            *turn.uncounted.items(),
        ):
            if unused:
                self._rejected[reason].inc(unused)

        end = self._windows.end(tick.number)
        self._lag.update(round(1000 * (now() - (tick.newest if end is None else end))))

    def _shard(self, key: int, journal: StateJournal, ledger: Any) -> AgentShard:
        """Give the shard of its state."""
        return self._remembered(key, journal.mark, lambda: self._restored(journal, ledger))

    def _restored(self, journal: StateJournal, ledger: Any) -> AgentShard:
        # The key is loaded on the worker, and is in no state.
        if self._noise is None:
            self._noise = noise_from_secret(self._secret.load(), self._settings.name)

        # A shard that begins, or one whose agents were lost, knows its charges by the ledger.
        encoded, changes = journal.read()
        before = None if encoded else charges_of_rows(ledger.read())
        return AgentShard(
            self._settings, self._noise, encoded, changes, most=self._most, charges=before
        )

    def _let_out(
        self, shard: AgentShard, batch: ReleaseBatch, refused: np.ndarray, tick: Tick
    ) -> Iterator[Any]:
        time = self._windows.released(tick.number)
        names = shard.agents.names
        settings = self._settings

        # What was refused is said in public: it follows from public numbers.
        if refused.any():
            rows = release_rows([batch], names, settings)
            lines = release_refusal_lines(
                rows, np.flatnonzero(refused).tolist(), names, settings
            ).lines

            for line in lines:
                yield TaggedOutput(
                    REFUSALS, with_window_time(time, Refusal.model_validate_json(line))
                )

        goes = np.flatnonzero(~refused)
        self._counters["refusals"].inc(
            len(refused) - len(goes)
        )  # none is a number, too: it is there from the first
        self._counters["releases"].inc(len(goes))

        if not len(goes):
            return
        releases = batch.releases.take(goes) if refused.any() else batch.releases

        # Agents in a batch are numbered by where their names stand in it.
        who, place = numbered_anew(releases.agent, shard.agents.n_agents)
        public = AgentReleases(
            names=pa.array([names[a] for a in who.tolist()], pa.large_string()),
            number=tick.number,
            releases=replace(releases, agent=place),
            time=batch.time[goes],
            words=shard.words[who],
        )
        yield with_window_time(time, public)
        self._counters["exhausted"].inc(len(batch.exhausted))

        for line in (
            release_budget_lines([batch], names, settings).lines if len(batch.exhausted) else ()
        ):
            yield TaggedOutput(
                NOTICES, with_window_time(time, BudgetEvent.model_validate_json(line))
            )

        # Changes that releases show are public as they are.
        drifts = DriftsOfReleases.of([batch], np.flatnonzero(refused).tolist())
        self._counters["drifts"].inc(drifts.drifts)
        self._counters["drift_warnings"].inc(drifts.warnings)

        for line in drifts.lines(names).lines:
            yield TaggedOutput(DRIFTS, with_window_time(time, DriftEvent.model_validate_json(line)))

    def _own(self, shard: AgentShard, turn: Turn, due: list[Tick]) -> Any:
        who, place = numbered_anew(turn.own.agent, shard.agents.n_agents)
        number = due[-1].number
        newest = np.array([tick.newest for tick in due])[
            np.searchsorted([tick.number for tick in due], turn.part)
        ]

        batch = OwnBatch(
            names=pa.array([shard.agents.names[a] for a in who.tolist()], pa.large_string()),
            words=shard.words[who],
            number=number,
            own=records_of_agents(turn.own, np.arange(len(turn.own)), place),
            part=turn.part,
            newest=newest,
        )

        return TaggedOutput(OWN, with_window_time(self._windows.released(number), batch))
