"""What the engine asks of a source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from meanstream.operators.limits import MAX_AGENTS
from meanstream.streaming.events.event_columns import Batch, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsOfStore:
    """What a store knows of where agents live: for a source that other stores read parts of.

    Attributes
    ----------
    names : tuple of str
        All agents that it ever had.
    given : frozenset of str
        Those of them that live in another store now (`meanstream store move`).
    moves : mapping
        Of those that it was given, by name: the number of the move.
    departed_partitions : frozenset of int
        Partitions that another store reads now.
    former_owners : mapping
        Of partitions that it was given: ids of the stores that had them.
    most : int
        Agents that may ever be claimed.
    at_once : bool
        An agent is claimed with its first sample. Of rounds, where who has sent something is
        protected until a window has ended, the engine claims who takes part (`Claims`).
    """

    names: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    moves: Mapping[str, int] = field(default_factory=dict)
    departed_partitions: frozenset[int] = frozenset()
    former_owners: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    most: int = MAX_AGENTS
    at_once: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How to open a source, besides its columns; each kind takes what concerns it.

    Attributes
    ----------
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines or values are skipped and reported.
    owner : str or None
        Topic: public id of the store that reads it; without it the topic is checked and cannot be
        read.
    until_end : bool
        Topic: end where it ends when reading begins.
    name : str or None
        Topic: name of the deployment; no other store of that name may own what is read, in
        whichever group.
    agents : AgentsOfStore or None
        Topic: which agents or users live in the store.
    """

    id_key: bytes
    max_line_bytes: int
    owner: str | None = None
    until_end: bool = False
    name: str | None = None
    agents: AgentsOfStore | None = None


class SourceLostError(RuntimeError):
    """The source can never be read again by this process; the message is one line for the user."""


class UnreadableSourceError(ValueError, SourceLostError):
    """The source cannot be read, as a damaged file.

    Refused where that shows at the start, else the end of the run.
    """


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
class KnowsOffsets(Protocol):
    """A source that tells others, such as tools that watch its lag, how far it was read.

    The store decides.
    """

    bounded: bool

    def commit(self, position: Position) -> None:
        """Tell of a position that the store has committed; best effort, without waiting."""


@runtime_checkable
class Begins(Protocol):
    """A source that can be refused where it begins, such as a topic that another store reads."""

    def begin(self) -> None:
        """Begin, for a store that has no position yet; `ValueError` where that is refused."""


@runtime_checkable
class Shared(Protocol):
    """A source of which several stores read parts: each agent lives in one of them."""

    is_part: bool
    """Whether others read the rest of it."""

    def elsewhere(self, names: Collection[str]) -> set[str]:
        """Say which of some agents live in another store."""


@runtime_checkable
class Claims(Protocol):
    """A source of which several stores read parts, and whose engine says when someone is to live in its store."""

    def claim(self, names: Sequence[str], *, patient: bool) -> set[str] | None:
        """Let those live in the store who live in none yet; say who lives in another.

        None: no one can say just now.

        Who is `patient` waits; `SourceLostError` if that is in vain.
        """


@runtime_checkable
class InOrder(Protocol):
    """A source whose samples come in the order of event time."""

    in_order: bool


@runtime_checkable
class AtHand(Protocol):
    """A source that lies there whole, as a file does.

    Nobody has to wait for its next batch, or for its end.
    """

    at_hand: bool


@runtime_checkable
class Holds(Protocol):
    """A source that can be read to where it ends at a moment, and no further until that is wanted."""

    bounded: bool

    def hold(self) -> bool:
        """Give from now on only what is there now.

        False if no one can say just now where that ends.
        """

    def reached_hold(self) -> bool:
        """Say whether all of it was given."""

    def go_on(self) -> None:
        """Give what has come since, too."""


@runtime_checkable
class _Rests(Protocol):
    """A source that must do something while nothing is taken from it, such as to hear what its brokers say."""

    def rest(self) -> None:
        """Do it; called about once a second while the sinks wait.

        What comes later must not change by it.
        """


def let_source_rest(source: Source) -> None:
    """Nothing will be taken from a source for a second or so."""
    if isinstance(source, _Rests):
        source.rest()


def other_source_file(name: str, *, grown: bool = False) -> ValueError:
    """Make the refusal of a file that is not the one that was read, with the ways out.

    Examples
    --------
    >>> str(other_source_file("x.csv"))[:71]
    "source must be the file that this store was filled from, got another 'x"
    """
    end = " (more may stand at its end)" if grown else ""
    return ValueError(
        f"source must be the file that this store was filled from, got another {name!r}: put back the file as it was "
        f"read{end}, or give new records in a file of another name after `meanstream store adopt --source NAME`"
    )


def require_source_position(position: Position, key: str, source: str) -> None:
    """Refuse a position that another way of reading the source has left."""
    if key not in position:
        raise ValueError(
            f"sort must be as when the store was begun, got another way of reading {source!r}"
        )
