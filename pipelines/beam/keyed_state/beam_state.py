"""Keyed state begins with what made it, and under anything else it is refused in one line, before it is read.

A runner restores whatever bytes a savepoint holds. Continued with other bounds, they would be other
sums; with another secret, name or number of shards, a release id would get a second value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apache_beam.runners.worker import statecache

from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.store.store_identity import (
    OtherIdentityError,
    identity_repeated_salt,
    make_identity,
    require_same_identity,
)

NO_SECRET = b"made of what is public"
"""Stands for the secret of state that is made without one."""

KEY_BITS = 16
"""Of a key on its way: the shard; what made it is above."""

_PLAIN = (bytes, int, float, str, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOwner:
    """Whose state it is; travels with the pipeline, and holds no secret.

    Attributes
    ----------
    settings : mapping
        What the state cannot change, by the names of the options: the deployment's name, privacy
        parameters, shards...
    secret : SecretLocation or None
        Where workers find the secret; None for state that is made of public data.
    """

    settings: Mapping[str, Any]
    secret: SecretLocation | None = None

    def mark(self) -> StateMark:
        """Make the mark, on a worker."""
        weigh_state_by_length()
        return StateMark(self.settings, self.load())

    def load(self) -> bytes:
        """Read the secret, on a worker."""
        if self.secret is None:
            return NO_SECRET
        return self.secret.load()


class StateMark:
    """What a state begins with.

    The same bytes on every worker and retry, and nothing of the secret.

    Parameters
    ----------
    settings : mapping
        Plain data.
    secret : bytes
        Of the noise.

    Examples
    --------
    >>> class Cell:
    ...     value = None
    ...     def read(self): return self.value
    ...     def write(self, value): self.value = value
    >>> cell = Cell()
    >>> StateMark({"name": "delays", "shards": 8}, b"sixteen bytes or more").claim(cell)
    >>> StateMark({"name": "delays", "shards": 4}, b"sixteen bytes or more").claim(cell)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    meanstream.streaming.store.store_identity.OtherIdentityError: shards must be 8 as in the state that is continued...
    """

    def __init__(self, settings: Mapping[str, Any], secret: bytes) -> None:
        (self._settings,) = beam_event_from_json(
            beam_event_to_json([dict(settings)])
        )  # as it will be read
        self._secret = secret
        salt = identity_repeated_salt(self._settings, secret)
        made = make_identity(self._settings, secret, salt=salt)
        self._encoded = beam_event_to_json([made])
        self._number = int(made["secret"], 16) % (1 << (63 - KEY_BITS))

    def claim(self, made: Any, *kept: Any) -> None:
        """Write what made a state where it begins; refuse one that something else has made."""
        saved = made.read()
        if not saved:
            if any(map(_holds, kept)):
                raise OtherIdentityError(
                    "state must say what made it, got none (begin a job under a new name)"
                )

            made.write(self._encoded)
        elif saved != self._encoded:
            (identity,) = beam_event_from_json(saved)
            require_same_identity(identity, self._settings, self._secret)
            raise OtherIdentityError("state must begin as this version writes it, got another mark")

    def key(self, shard: int) -> int:
        """Give a shard's key for data on their way to be grouped.

        Data that others have made never have it.
        """
        return self._number << KEY_BITS | shard

    def shard(self, key: int) -> int:
        """Read what `key` gave."""
        if key >> KEY_BITS != self._number:
            raise OtherIdentityError(
                "name, settings, shards and secret must be those that the state was made with"
            )

        return key & ((1 << KEY_BITS) - 1)


class MarkKeys(Step):
    """Data to keys that say what made them.

    What waits in a runner's own state to be grouped is known again.

    Parameters
    ----------
    owner : StateOwner
        What makes them.
    part : function
        From data to a whole number; data of one key and different numbers need not meet.
    """

    def __init__(self, owner: StateOwner, part: Callable[[Any], int]) -> None:
        self._owner = owner
        self._part = part

    def setup(self) -> None:
        """Make the mark."""
        self._mark = self._owner.mark()

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[tuple[int, int], Any]]:
        """Mark one."""
        yield (self._mark.key(element[0]), self._part(element[1])), element[1]


def _holds(state: Any) -> bool:
    """Say whether a cell or a bag is not empty."""
    found = state.read()

    if found is None or isinstance(found, bytes):
        return bool(found)
    return any(True for _ in found)


def weigh_state_by_length() -> None:
    """Let this worker's cache weigh lists of bytes by their lengths; anything else as it did.

    Beam (2.77) weighs whatever it caches by a walk over the globals of all modules that are loaded:
    2 ms for each read and write of a state, which is more than all of our work on it.
    """
    whole = getattr(statecache, "get_deep_size", None)
    if whole is None or getattr(whole, "by_length", False):
        return

    def weight(*values: Any) -> int:
        found = 0
        for value in values:
            one = _length(value)
            if one is None:
                return int(whole(*values))
            found += one

        return found

    weight.by_length = True  # type: ignore[attr-defined]
    statecache.get_deep_size = weight


def _length(value: Any) -> int | None:
    """Add up lists of plain values; None for anything else.

    Examples
    --------
    >>> _length([b"a" * 1000]) > 1000, _length([object()])
    (True, None)
    """
    if isinstance(value, _PLAIN):
        return sys.getsizeof(value)
    if type(value) not in {list, tuple}:
        return None

    parts = [_length(one) for one in value]

    if None in parts:
        return None
    return sys.getsizeof(value) + sum(part for part in parts if part is not None)
