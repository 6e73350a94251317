"""The users' side alone: rounds that wait for what the statistician finds, and go on when it is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from operators.round_records import Public
from streaming.events import StageResult
from streaming.rounds.reports import WindowRound
from streaming.rounds.run import Directory, Outcome, RoundRunner
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.summarize import UserSums
from streaming.rounds.windows import Window
from streaming.sources.lines import LineReader
from streaming.store.store import Store

_READ_LINES = 65_536
_KIND = "rounds_waiting"

StageResults = Mapping[tuple[str, int], Public]
"""What everybody knows after a stage, by round and stage."""


class StageResultsFile:
    """What a statistician has published in a JSONL file; it may grow, and need not be there yet.

    The first result of a stage counts: users have reported upon it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0  # when it was read last

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""
        return self._path.is_file() and self._path.stat().st_size > self._size

    def read(self) -> StageResults:
        """Read all results that are there; lines that are none are skipped."""
        found: dict[tuple[str, int], Public] = {}
        for event in self._events():
            found.setdefault((event.round_id, event.stage), event.public)
        return found

    def _events(self) -> Iterator[StageResult]:
        if not self._path.is_file():
            return
        self._size = self._path.stat().st_size
        with closing(LineReader(self._path)) as reader:
            while (taken := reader.next_block(_READ_LINES)) is not None:
                for line in taken[0].lines():
                    try:
                        yield StageResult.model_validate_json(line)
                    except ValidationError:
                        continue


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Private: a round, the users that no stage has asked yet, and the stage whose result is waited for."""

    this: WindowRound
    sums: UserSums
    stage: int


class WaitingRounds:
    """Rounds between two stages; saved with the sums of the users who have not reported yet.

    **Privacy.** A user reports once, in its own stage, upon the first result that it hears of. What the statistician
    publishes can make reports useless; it cannot make them less private.
    """

    def __init__(self, settings: RoundsSettings, runner: RoundRunner, directory: Directory) -> None:
        self._settings = settings
        self._runner = runner
        self.directory = directory
        self._rounds: dict[int, _Waiting] = {}
        self._next = 0
        self._changed: set[int] = set()
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._rounds)

    def reserve(self) -> None:
        """Count these rounds for their users."""
        for waiting in self._rounds.values():
            self._runner.reserve(waiting.sums.user)

    def enter(self, this: WindowRound, sums: UserSums, outcome: Outcome) -> None:
        """Begin a round: the users of its first stage report."""
        self._ask(self._next, _Waiting(this, sums, -1), {}, outcome)
        self._next += 1

    def go_on(self, results: StageResults, outcome: Outcome) -> None:
        """Let the users report whose stage comes after a result that is there."""
        for number, waiting in sorted(self._rounds.items()):
            current: _Waiting | None = waiting
            while current is not None and (current.this.id, current.stage) in results:
                current = self._ask(number, current, results[current.this.id, current.stage], outcome)

    def save(self, store: Store) -> list[Any]:
        """Write what changed within a transaction; return the rest as plain values."""
        for number in sorted(self._changed):
            store.put_chunk(_KIND, number, dict(self._rounds[number].sums.columns()))
        store.drop_chunks(_KIND, self._dropped)
        self._changed, self._dropped = set(), []
        return [[n, *w.this.window, w.this.users, w.stage] for n, w in sorted(self._rounds.items())]

    def restore(self, store: Store, state: list[Any]) -> None:
        """Continue from what was saved."""
        sums = dict(store.chunks(_KIND))
        for number, start, end, users, stage in state:
            this = WindowRound(self._settings, Window(start, end), users)
            self._rounds[number] = _Waiting(this, UserSums(**sums[number]), stage)
            self._next = number + 1

    def _ask(self, number: int, waiting: _Waiting, public: Public, outcome: Outcome) -> _Waiting | None:
        """Make the reports of the next stage; give what still waits."""
        this, stage = waiting.this, waiting.stage + 1
        self._runner.report(this, stage, public, waiting.sums, outcome)
        if stage == this.stages[-1]:
            if self._rounds.pop(number, None) is not None:
                self._changed.discard(number)
                self._dropped.append(number)
            outcome.finished += 1
            return None
        asked = this.stage_of(self.directory.words(waiting.sums.user)) <= stage
        rest = _Waiting(this, waiting.sums.take(np.flatnonzero(~asked)), stage)
        self._rounds[number] = rest
        self._changed.add(number)
        return rest
