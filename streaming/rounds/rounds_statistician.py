"""Reports as a statistician receives them.

Where they are read, and those of one stage of one round.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from pydantic import ValidationError

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.round_records import Estimate, Public, Reports
from meanstream.operators.validation import require
from meanstream.streaming.clock import Clock, SystemClock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step, no_crash
from meanstream.streaming.engine.engine_delivery import ROUNDS_OUTBOX, CommittedDelivery
from meanstream.streaming.engine.engine_health import Connected, EngineHealth
from meanstream.streaming.engine.engine_loop import never_stop_loop
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.encode import UNREADABLE, EventLines
from meanstream.streaming.events.round_events import Report, StageReports
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
from meanstream.streaming.rounds.rounds_stats import StatisticianStats
from meanstream.streaming.rounds.window_round import (
    NO_SIDES,
    WindowRound,
    estimate_event_line,
    stage_event_line,
)
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.sources.received_releases import MAX_INTEGER
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import SIDE

_READ_LINES = 65_536


class ReportsLocation(Protocol):
    """Where users' sides write.

    Attributes
    ----------
    follows : bool
        Whether a run goes on as more comes, until it is stopped.
    """

    follows: bool

    def lines(self) -> Iterator[bytes | None]:
        """Give what has come since the last reading, without line ends.

        None for what is too long.
        """

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""


class ReportsFile:
    """A JSONL file of reports, read as a whole."""

    follows = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> Iterator[bytes | None]:
        """Give the lines of the file."""
        with closing(LineReader(self._path, option="from_reports")) as reader:
            while (taken := reader.next_block(_READ_LINES)) is not None:
                block, oversized = taken
                yield from [None] * len(oversized)
                yield from block.lines()

    def grew(self) -> bool:
        """Say no: anyone who wants more runs again."""
        return False

    def close(self) -> None:
        """Nothing is open between two readings."""


@dataclass(slots=True)
class ReceivedReports:
    """Reports of one stage of one round, as they came."""

    users: list[str] = field(default_factory=list)
    payload: list[tuple[int, ...]] = field(default_factory=list)
    epsilon: list[float] = field(default_factory=list)
    complete: StageReports | None = None
    expected: int = 0
    forgotten: int = 0

    def forget(self) -> None:
        """Let go of reports that no one asks for any more, but for their number."""
        self.forgotten += len(self.users)
        self.users = []
        self.payload = []
        self.epsilon = []


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    """A report, read fast."""

    round_id: str
    user: str
    stage: int
    payload: tuple[int, ...]
    epsilon: float
    schema_version: int

    def __post_init__(self) -> None:
        if (
            self.schema_version != 1
            or self.stage < 0
            or any(not -(2**63) <= x < 2**63 for x in self.payload)
        ):
            raise ValueError("report must be of schema version 1, with numbers of 64 bits")


_REPORT = msgspec.json.Decoder(_Report)


def read_report(line: bytes) -> _Report | None:
    """Read a line; None if it is no report."""
    try:
        return _REPORT.decode(line)
    except UNREADABLE:
        return None


_POLL_SECONDS = 0.2
_log = logging.getLogger("meanstream.statistician")


@dataclass(slots=True)
class _Progress:
    """How far a round has come.

    The next stage, what is public, how many reports each stage counted.
    """

    window: tuple[int, int]
    users: int
    stage: int = 0
    public: Public = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)
    found: list[int] = field(
        default_factory=list
    )  # reports that had come when the stage was tallied
    done: bool = False


class Statistician:
    """Tallies reports and takes each round as far as its reports go.

    Every run reads all of them again.

    A stage is tallied once, when its users' side has said that its reports are complete; what comes
    later is counted as late. Where there are several users' sides, let all of them write before it
    runs, and tell all of them `users`. Results are committed before they are written, so that a
    crash changes none.

    Parameters
    ----------
    reports : ReportsLocation
        Events `report` and `stage_reports`, in any order.
    settings : RoundsSettings
        Those of the users' side, apart from what concerns its host.
    store : Store
        Of its own, opened with `statistician_identity`; what was found is kept in it.
    sinks : Sinks
        `stages` and `means`.
    on_pass : callable, optional
        Called with the figures at the start and whenever reports were read.
    health : EngineHealth, optional
        For probes and metrics.

    Notes
    -----
    **Privacy.** It knows reports, all of which are public, and neither samples nor the secret: it
    spends nothing.
    """

    def __init__(
        self,
        *,
        reports: ReportsLocation,
        settings: RoundsSettings,
        store: Store,
        sinks: Sinks,
        clock: Clock | None = None,
        crash: CrashHook = no_crash,
        on_pass: Callable[[StatisticianStats], None] | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        self.stats = StatisticianStats(lateness=settings.allowed_lateness)
        self._reports = reports
        self._on_pass = on_pass
        self._received: dict[str, dict[int, ReceivedReports]] = defaultdict(
            lambda: defaultdict(ReceivedReports)
        )
        self._settings = settings
        self._store = store
        self._crash = crash
        self._rounds: dict[str, _Progress] = {}
        self._health = health or EngineHealth()

        if isinstance(reports, Connected) and reports.watched:
            self._health.watch(reports)

        self._delivery = CommittedDelivery(
            store=store,
            sinks=sinks,
            stats=EngineStats(),
            clock=clock or SystemClock(),
            health=self._health,
            crash=crash,
            meanwhile=lambda: None,
            charged=Report,
            charged_role="reports",
            outbox=ROUNDS_OUTBOX,
        )

    def run(self, stop: Callable[[], bool] = never_stop_loop) -> StatisticianStats:
        """Read all reports and publish what follows from them."""
        # What the last commit knows is delivered first: a kill may have come in between.
        self._store.keep()
        state = self._store.state("statistician") or {}
        self._rounds = {name: _Progress(**progress) for name, progress in state.items()}
        self._delivery.resume()
        self._delivery.deliver(stop)
        self._health.waiting("reports are being read")
        self._notify()
        self._pass(stop)
        self._health.started()

        # Reports on a topic have no end: wait until more have come.
        while self._reports.follows and not stop():
            if self._reports.grew():
                self._pass(stop)
            else:
                time.sleep(_POLL_SECONDS)

            self._health.turned()

        self._health.stopping()
        self._delivery.mark()
        return self.stats

    def _pass(self, stop: Callable[[], bool]) -> None:
        """Read what has come, and publish what follows from all that was read."""
        # Rounds in the order of their windows, so that answers come in it, too.
        self._read()
        events: list[EventLines] = []
        round_names = [name for name, stages in self._received.items() if self._known(name, stages)]
        for name in sorted(round_names, key=lambda name: self._rounds[name].window):
            if not stop():
                self._advance(name, self._received[name], events)

        # Stages and events are committed together, and delivered after that.
        self._count()
        with crash_step(CrashPoint.COMMIT, self._crash), self._store.transaction():
            self._store.put_state(
                "statistician", {name: asdict(progress) for name, progress in self._rounds.items()}
            )

            for lines in events:
                self._store.post(lines.kind.topic, lines.lines)

            self._delivery.save()

        self._delivery.deliver(stop)
        self._notify()

    def _notify(self) -> None:
        if self._on_pass is not None:
            self._on_pass(self.stats)

    def _read(self) -> None:
        """Read what has come, by round and stage."""
        for line in self._reports.lines():
            if line is None:
                self.stats.rejected["oversized"] += 1
            else:
                self._take(line)

    def _take(self, line: bytes) -> None:
        # A line is a report, or says that a stage is complete, or is rejected.
        report = read_report(line)
        if report is None:
            self._take_complete(line)
            return

        stage = self._received[report.round_id][report.stage]
        stage.users.append(report.user)
        stage.payload.append(report.payload)
        stage.epsilon.append(report.epsilon)
        self.stats.reports += 1

    def _take_complete(self, line: bytes) -> None:
        try:
            event = StageReports.model_validate_json(line)
        except ValidationError:
            self.stats.rejected["malformed"] += 1
            return

        # A design for more users than numbers can count has no end.
        if max(event.users, event.reports, event.stage) > MAX_INTEGER:
            self.stats.rejected["malformed"] += 1
            return

        stage = self._received[event.round_id][event.stage]
        stage.complete = event
        stage.expected += event.reports

    def _known(self, name: str, stages: dict[int, ReceivedReports]) -> bool:
        """Say whether a round is one of these settings.

        Remember it from its first completed stage on.
        """
        # A round is believed once a stage is complete whose id follows from these settings.
        if name in self._rounds:
            return True
        complete = next(
            (s.complete for _, s in sorted(stages.items()) if s.complete is not None), None
        )

        if complete is None:
            return False
        window = Window.between(complete.start, complete.end)
        this = WindowRound(self._settings, window, complete.users)

        # Reports of other settings are not read as ours: they would be decoded wrongly.
        if this.id != name or self._settings.design_users(complete.users) != complete.users:
            self.stats.rejected["other_round"] += sum(len(s.users) for s in stages.values())
            for received in stages.values():
                received.forget()

            return False

        self._rounds[name] = _Progress(window=(window.start, window.end), users=complete.users)
        return True

    def _advance(
        self, name: str, stages: dict[int, ReceivedReports], events: list[EventLines]
    ) -> None:
        """Tally the stages of a round that are complete, one after the other."""
        progress = self._rounds[name]
        this = WindowRound(self._settings, Window(*progress.window), progress.users)
        while not progress.done:
            stage = progress.stage
            came = stages.get(stage)

            # Not before all reports of the stage have come, as the line says that ends it.
            if came is None or came.complete is None or len(came.users) < came.expected:
                return

            reports = self._accepted(this, stage, came)
            tally, invalid = this.tally(stage, progress.public, reports)
            self.stats.rejected["invalid"] += invalid
            result = this.decode(stage, progress.public, tally)
            progress.counted.append(tally.n)
            progress.found.append(len(came.users))

            # The last stage gives the answer; every other one gives what the next one is told.
            if isinstance(result, Estimate):
                events.append(estimate_event_line(this, result, sum(progress.counted)))
                self.stats.answer = events[-1].lines[-1]
                progress.done = True
                self.stats.estimates += 1
            else:
                progress.public = result
                progress.stage = stage + 1
                events.append(stage_event_line(this, stage, tally, result))
                self.stats.stages += 1

    def _accepted(self, this: WindowRound, stage: int, came: ReceivedReports) -> Reports:
        """Give the reports that count.

        One per user, of its own stage, made at the epsilon that was agreed on.
        """
        good = np.zeros(len(came.users), np.bool_)

        # Of several reports of one user the first counts.
        good[sorted({user: i for i, user in reversed(list(enumerate(came.users)))}.values())] = True
        self._refuse("duplicate", ~good)
        epsilon = this.estimator.rounds[stage].epsilon
        width = Counter(map(len, came.payload)).most_common(1)[0][0] if came.payload else 0

        # A report must be of this stage and budget, and as long as most others are.
        for reason, wrong in (
            (
                "wrong_stage",
                this.stage_of(keyed_owner_words(came.users)) != stage if came.users else good[:0],
            ),
            ("other_epsilon", np.array(came.epsilon) != epsilon),
            ("malformed", np.array([len(row) != width for row in came.payload], np.bool_)),
        ):
            self._refuse(reason, wrong & good)
            good &= ~wrong

        rows: Sequence[tuple[int, ...]] = [came.payload[i] for i in np.flatnonzero(good).tolist()]
        return np.array(rows, np.int64).reshape(len(rows), width)

    def _refuse(self, reason: str, which: Any) -> None:
        self.stats.rejected[reason] += int(np.count_nonzero(which))

    def _count(self) -> None:
        """Count what is late, and forget the reports of rounds that are done."""
        late = 0
        for name, progress in self._rounds.items():
            stages = self._received.get(name, {})
            for stage, tallied in enumerate(progress.found):
                came = stages.get(stage)
                late += max((came.forgotten + len(came.users) if came else 0) - tallied, 0)

            # Reports of a round that is done are only counted when they come again.
            for received in stages.values() if progress.done else ():
                received.forget()

        self.stats.rejected["late"] = late
        self.stats.rounds = len(self._rounds)
        self.stats.waiting = sum(not progress.done for progress in self._rounds.values())
        self.stats.rejected = +self.stats.rejected


PUBLIC_SECRET = b"the statistician has no secret"
"""Opens the store of a statistician, which holds nothing that is not public."""


def statistician_identity(settings: RoundsSettings) -> dict[str, Any]:
    """Give the settings of a statistician's store."""
    require(not settings.central, "estimator", f"be local here: {NO_SIDES}", settings.estimator)
    settings.require_nothing_carried("on two sides", NO_ORDER)
    require(
        settings.user_budget is None,
        "user_budget",
        "be given on the users' side only",
        settings.user_budget,
    )

    return {SIDE: "statistician", **settings.protocol()}
