"""What each user has spent over all rounds, as state of a shard: over the budget, a user's data does not enter."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from operators.records import Bools, Ints, Words
from pipelines.beam.events import DamagedBytesError
from pipelines.beam.metrics import counter
from pipelines.beam.rounds.coders import UserBatchCoder
from pipelines.beam.rounds.records import UserBatch
from pipelines.beam.rounds.windows import MILLI, carried, release_time, stamp
from streaming.rounds.settings import RoundsSettings

LEDGER_VERSION = 1
_HEAD = struct.Struct("<Bq")


class SpendLedger:
    """Rounds that each user of a shard has paid for.

    Parameters
    ----------
    encoded : bytes
        As `to_bytes` gives it; empty at first.

    Examples
    --------
    >>> ledger = SpendLedger(b"")
    >>> users = np.array([[1, 2], [3, 4]], np.uint64)
    >>> ledger.spent(users).tolist(), ledger.charge(users[:1]), SpendLedger(ledger.to_bytes()).spent(users).tolist()
    ([0, 0], None, [1, 0])
    """

    def __init__(self, encoded: bytes) -> None:
        self._words: Words = np.zeros((0, 2), np.uint64)
        self._rounds: Ints = np.zeros(0, np.int64)
        if encoded:
            version, n = _HEAD.unpack_from(encoded)
            if version != LEDGER_VERSION:
                raise DamagedBytesError(f"ledger of a shard must be of version {LEDGER_VERSION}, got {version}")
            self._words = np.frombuffer(encoded, "<u8", 2 * n, _HEAD.size).reshape(n, 2).astype(np.uint64)
            self._rounds = np.frombuffer(encoded, "<i8", n, _HEAD.size + 16 * n).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Give what makes the same ledger again."""
        head = _HEAD.pack(LEDGER_VERSION, len(self._rounds))
        return b"".join([head, self._words.astype("<u8").tobytes(), self._rounds.astype("<i8").tobytes()])

    def spent(self, words: Words) -> Ints:
        """Tell how many rounds each user has paid for."""
        place, known = self._find(words)
        spent = np.zeros(len(words), np.int64)
        spent[known] = self._rounds[place[known]]
        return spent

    def charge(self, words: Words) -> None:
        """Charge one round to each of these different users."""
        place, known = self._find(words)
        self._rounds[place[known]] += 1
        if not known.all():
            self._words = np.concatenate([self._words, words[~known]])
            self._rounds = np.concatenate([self._rounds, np.ones(int((~known).sum()), np.int64)])
            order = np.lexsort((self._words[:, 1], self._words[:, 0]))
            self._words, self._rounds = self._words[order], self._rounds[order]

    def _find(self, words: Words) -> tuple[Ints, Bools]:
        keys, wanted = _bytes_of(self._words), _bytes_of(words)
        place = np.searchsorted(keys, wanted)
        known = place < len(keys)
        known[known] = keys[place[known]] == wanted[known]
        return place.astype(np.int64), known


class EnforceBudget(beam.DoFn):  # type: ignore[misc]
    """Users of a shard, round after round in the order of time; who cannot pay does not enter.

    Rounds wait until event time has come to their release, so that an earlier round is always charged before a later
    one. Users who do not enter are counted (`over_budget`).

    **Privacy.** The state is keyed by shard and lives as long as the pipeline; a user's total spend over all rounds
    stays within `user_budget`.
    """

    WAITING = BagStateSpec("waiting", BytesCoder())
    LEDGER = ReadModifyWriteStateSpec("ledger", BytesCoder())
    RELEASE = TimerSpec("release", TimeDomain.WATERMARK)

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def setup(self) -> None:
        """Begin to count."""
        self._coder = UserBatchCoder()
        self._refused = counter("over_budget")

    def process(
        self,
        element: tuple[int, UserBatch],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        timer: Any = beam.DoFn.TimerParam(RELEASE),
    ) -> None:
        """Keep a round of this shard until its release."""
        batch = element[1]
        waiting.add(self._coder.encode(batch))
        timer.set(stamp(self._settings, batch.window), dynamic_timer_tag=str(batch.window.end))

    @on_timer(RELEASE)  # type: ignore[untyped-decorator]
    def release(
        self,
        key: int = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ledger: Any = beam.DoFn.StateParam(LEDGER),
    ) -> Iterator[Any]:
        """Charge and let go all rounds that are due, the earliest first."""
        batches = [self._coder.decode(encoded) for encoded in waiting.read()]
        batches.sort(key=lambda batch: (batch.window.end, batch.window.start))
        limit = time.micros // MILLI
        due = [b for b in batches if (release_time(self._settings, b.window) - MILLI) // MILLI <= limit]
        if not due:
            return
        waiting.clear()
        for batch in batches[len(due) :]:
            waiting.add(self._coder.encode(batch))
        spend = SpendLedger(ledger.read() or b"")
        for batch in due:
            yield from self._enter(key, batch, spend)
        ledger.write(spend.to_bytes())

    def _enter(self, key: int, batch: UserBatch, spend: SpendLedger) -> Iterator[Any]:
        horizon = self._settings.horizon
        pays = np.ones(len(batch), np.bool_) if horizon is None else spend.spent(batch.words) < horizon
        taking = batch if pays.all() else batch.take(pays)
        spend.charge(taking.words)
        self._refused.inc(len(batch) - len(taking))
        yield carried(self._settings, (key, taking), batch.window)


def _bytes_of(words: Words) -> np.ndarray:
    """Sort and compare both halves as one: big-endian bytes keep the order of the numbers."""
    return np.ascontiguousarray(words.astype(">u8")).view("S16")[:, 0] if len(words) else np.zeros(0, "S16")
