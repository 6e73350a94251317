"""Private to public: what the agents of a shard release, under a ledger that is kept with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from time import perf_counter
from time import time as now
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from operators.agents import AgentsSettings, ReleaseBatch
from operators.noise import KeyedNoise
from operators.records import ReleaseColumns
from pipelines.beam.agents.coders import ForShardCoder, open_samples, pack_samples
from pipelines.beam.agents.records import AgentReleases, OwnBatch, Packed, Tick, own_of
from pipelines.beam.agents.shard import AgentShard, ReleaseLedger, Turn
from pipelines.beam.agents.waiting import keep, take_due, up_to
from pipelines.beam.agents.windows import AgentWindows, at
from pipelines.beam.metrics import DistributionOf, counter
from pipelines.beam.samples import RememberedWords
from pipelines.beam.secret import SecretPlace
from streaming.events import BudgetEvent, Refusal
from streaming.releases import budget_lines, ledger_rows, refusal_lines
from streaming.secret import deployment_noise

OWN, NOTICES, REFUSALS = "own", "notices", "refusals"


class ReleaseShard(beam.DoFn):  # type: ignore[misc]
    """Private to public: the agents of a shard, their samples and their ledger, as state.

    Samples wait until event time has passed the end of a window, so that their order does not depend on their arrival.

    **Privacy.** Noise is a function of (secret, release id, input): what is executed again releases the same again. A
    release is charged in the state, which is committed with what leaves, before it leaves.
    """

    WAITING = BagStateSpec("waiting", BytesCoder())
    TICKS = BagStateSpec("ticks", BytesCoder())
    AGENTS = ReadModifyWriteStateSpec("agents", BytesCoder())
    CHARGES = ReadModifyWriteStateSpec("charges", BytesCoder())
    LEDGER = BagStateSpec("ledger", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(
        self, settings: AgentsSettings, windows: AgentWindows, secret: SecretPlace, *, final_release: bool
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._secret = secret
        self._final_release = final_release

    def setup(self) -> None:
        """Begin to count."""
        self._coder = ForShardCoder()
        self._words = RememberedWords()
        self._noise: KeyedNoise | None = None
        self._known: dict[int, tuple[bytes, AgentShard]] = {}
        self._counters = {name: counter(name) for name in ("agents", "exhausted", "releases", "refusals")}
        self._rejected = {reason: counter("rejected_", reason) for reason in ("late", "duplicate")}
        self._lasted, self._lag = DistributionOf("batch_milliseconds"), DistributionOf("release_lag_milliseconds")

    def process(
        self,
        element: tuple[int, Packed | Tick],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        timer: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        """Keep samples until their window has ended."""
        keep(element[1], waiting, ticks, timer, self._coder, self._windows.released)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def due(  # noqa: PLR0917 - all of the state
        self,
        key: int = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        state: Any = beam.DoFn.StateParam(AGENTS),
        charges: Any = beam.DoFn.StateParam(CHARGES),
        ledger: Any = beam.DoFn.StateParam(LEDGER),
    ) -> Iterator[Any]:
        """Let the windows that have ended be released, the earliest first."""
        due = take_due(ticks, self._coder, time, self._windows.released)
        if not due:
            return
        began = perf_counter()
        samples = [open_samples(encoded) for encoded in waiting.read()]
        waiting.clear()
        before = state.read() or b""
        shard = self._shard(key, before)
        known = shard.agents.n_agents
        rows = ReleaseLedger(charges.read() or b"", ledger.read)
        for tick in due:
            taken, samples = up_to(samples, tick.number, self._windows)
            turn = shard.turn(taken, self._words.of, tick, self._windows, final_release=self._final_release)
            self._count(turn, tick)
            for batch in turn.released:
                charged, refused, row = rows.charge(batch, shard.words[batch.releases.agent])
                if row is not None:
                    ledger.add(row)
                yield from self._let_out(shard, charged, refused, tick)
            yield self._own(shard, turn, tick)
        for rest in samples:
            waiting.add(pack_samples(rest).encoded)
        charges.write(rows.to_bytes())
        after = shard.to_bytes()
        state.write(after)
        self._known[key] = after, shard
        self._counters["agents"].inc(shard.agents.n_agents - known)
        self._lasted.update(round(1000 * (perf_counter() - began)))

    def _count(self, turn: Turn, tick: Tick) -> None:
        for reason, unused in (("late", turn.late), ("duplicate", turn.duplicates)):
            if unused:
                self._rejected[reason].inc(unused)
        end = self._windows.end(tick.number)
        self._lag.update(round(1000 * (now() - (tick.newest if end is None else end))))

    def _shard(self, key: int, encoded: bytes) -> AgentShard:
        """Make the shard of its bytes; one whose bytes are still those it was written with is as it was."""
        known = self._known.pop(key, None)  # until it is written again it is not to be found
        if known is not None and known[0] == encoded:
            return known[1]
        if self._noise is None:
            self._noise = deployment_noise(self._secret.load(), asdict(self._settings))
        return AgentShard(self._settings, self._noise, encoded)

    def _let_out(self, shard: AgentShard, batch: ReleaseBatch, refused: np.ndarray, tick: Tick) -> Iterator[Any]:
        time, names, settings = self._windows.released(tick.number), shard.agents.names, self._settings
        if refused.any():
            rows = ledger_rows([batch], names, settings)
            lines = refusal_lines(rows, np.flatnonzero(refused).tolist(), names, settings.horizon).lines
            for line in lines:
                yield TaggedOutput(REFUSALS, at(time, Refusal.model_validate_json(line)))
        goes = np.flatnonzero(~refused)
        self._counters["refusals"].inc(len(refused) - len(goes))  # none is a number, too: it is there from the first
        self._counters["releases"].inc(len(goes))
        if not len(goes):
            return
        releases = batch.releases.take(goes)
        who, place = np.unique(releases.agent, return_inverse=True)
        columns = {name: getattr(releases, name) for name in ("index", "count", "total", "mean", "noise_variance")}
        public = AgentReleases(
            names=pa.array([names[a] for a in who.tolist()], pa.large_string()),
            number=tick.number,
            releases=ReleaseColumns(agent=place.astype(np.int64), **columns),
            time=batch.time[goes],
        )
        yield at(time, public)
        self._counters["exhausted"].inc(len(batch.exhausted))
        for line in budget_lines([batch], names, settings).lines if len(batch.exhausted) else ():
            yield TaggedOutput(NOTICES, at(time, BudgetEvent.model_validate_json(line)))

    def _own(self, shard: AgentShard, turn: Turn, tick: Tick) -> Any:
        names = [shard.agents.names[a] for a in turn.own.agent.tolist()]
        everybody = np.arange(len(names))
        batch = OwnBatch(
            names=pa.array(names, pa.large_string()),
            words=shard.words[turn.own.agent],
            number=tick.number,
            own=own_of(turn.own, everybody, everybody),
        )
        return TaggedOutput(OWN, at(self._windows.released(tick.number), batch))
