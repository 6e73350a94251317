"""What the engine asks of a source."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from streaming.columns import Batch, Position


class SourceLostError(RuntimeError):
    """The source can never be read again by this process; the message is one line for the user."""


class Source(Protocol):
    """Gives batches of samples, and resumes from the position that came with any of them.

    `name` identifies the source in dead letters and in the store; `bounded` says that it ends.
    """

    name: str
    bounded: bool

    def next_batch(self, max_samples: int) -> Batch:
        """Give what comes next: at most `max_samples`, nothing if nothing is there yet."""

    def restore(self, position: Position) -> None:
        """Continue after the batch that this position came with; call before the first batch."""

    def close(self) -> None:
        """Let go of files and connections."""


@runtime_checkable
class TellsOffsets(Protocol):
    """A source that tells others, such as tools that watch its lag, how far it was read; the store decides."""

    def commit(self, position: Position) -> None:
        """Tell of a position that the store has committed; best effort, without waiting."""


@runtime_checkable
class Begins(Protocol):
    """A source that can be refused where it begins, such as a topic that another store reads."""

    def begin(self) -> None:
        """Begin, for a store that has no position yet; `ValueError` where that is refused."""


@runtime_checkable
class Rests(Protocol):
    """A source that must do something while nothing is taken from it, such as to hear what its brokers say."""

    def rest(self) -> None:
        """Do it; called about once a second while the sinks wait. What comes later must not change by it."""


def let_rest(source: Source) -> None:
    """Nothing will be taken from a source for a second or so."""
    if isinstance(source, Rests):
        source.rest()


def require_position(position: Position, key: str, source: str) -> None:
    """Refuse a position that another way of reading the source has left.

    Raises
    ------
    ValueError
        If the source was read sorted before and is not now, or the other way round.
    """
    if key not in position:
        raise ValueError(f"sort must be as when the store was begun, got another way of reading {source!r}")
