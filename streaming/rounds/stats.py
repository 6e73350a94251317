"""What the engine of rounds counts."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.stats import EngineStats


@dataclass(slots=True)
class RoundsStats(EngineStats):
    """Counts since the process started; `agents` are the users, `releases` their reports.

    Attributes
    ----------
    rounds : int
        Rounds that came to their end.
    open_windows, waiting : int
        Windows that still take samples; rounds that wait for the result of a stage.
    over_budget : int
        How often a user's data did not enter a round, because the budget does not pay for it.
    answer : bytes or None
        The newest window estimate, as its line: public.
    answers_of_turn : tuple of bytes
        All window estimates of the last turn, likewise.
    """

    rounds: int = 0
    open_windows: int = 0
    waiting: int = 0
    over_budget: int = 0
    answer: bytes | None = None
    answers_of_turn: tuple[bytes, ...] = ()
