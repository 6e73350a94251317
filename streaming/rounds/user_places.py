"""Who has one of the `max_users` places of a store.

Decided when a window closes, by keyed hashes of names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_widths import MICROS, Window, Windows
from meanstream.streaming.sources.source_protocol import AgentsOfStore, Claims, Source
from meanstream.streaming.store.secret_source import key_derived_from_secret
from meanstream.streaming.store.state_store import Store

_KIND = "rounds_places"


def slot_key(secret: bytes) -> bytes:
    """Derive the key of the order in which users get places, the same on every host."""
    return key_derived_from_secret(secret, "places of users")


def slot_name_hashes(names: Sequence[str], key: bytes) -> Words:
    """Hash names with a secret key, as a uint64 array (n,).

    An order that is fixed and that no one can aim at.
    """
    begun = hashlib.blake2b(key=key, digest_size=8)
    digests = []
    for name in names:
        hashed = begun.copy()
        hashed.update(name.encode("utf-8", "surrogatepass"))
        digests.append(hashed.digest())

    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


class UserSlots:
    """The places of a store's users.

    Given when a window closes, in the order of the keyed hash, and never taken back.

    A window that is open keeps its known users, and of the others the `most` with the least hashes:
    no more of them could ever get a place. Known in a window is anyone who had a place before its
    first sample could be accepted. So what a window keeps is a function of who has sent something
    in it.

    Memory is bounded by `max_users`: a window that is open holds at most four times as many users,
    and names are remembered of users who were held.

    Parameters
    ----------
    most : int
        Users who may ever take part.
    key : bytes
        Secret key of the order.
    names : list of str
        All names by number; it grows.
    windows : Windows
        How event time is cut.
    early : float
        Seconds that a sample may lie ahead of the clock.

    Notes
    -----
    **Privacy.** Who gets the last places depends on names, the key, and who took part in which window. First come,
    first served would tell whose sample came before whose.
    """

    def __init__(
        self, most: int, key: bytes, names: list[str], windows: Windows, early: float
    ) -> None:
        self.names = names
        self._most = most
        self._key = key
        self._windows = windows
        self._early = early
        self._since: Floats = np.zeros(0)  # by number: the clock when the place was given

        self._hashes: Words = np.zeros(0, np.uint64)
        self._taken = 0
        self._full_since = math.inf
        self._new: list[tuple[Ints, float]] = []
        self._saved = 0
        self._limits: dict[Window, np.uint64] = {}
        self._refused = 0

    @property
    def hold(self) -> int:
        """How many entries a window may hold before those are dropped that can get no place."""
        return 4 * self._most

    @property
    def full(self) -> bool:
        """Whether all places are given."""
        return self._taken >= self._most

    @property
    def refuses(self) -> bool:
        """Whether some new names may get no place, whatever they send (`hopeless`)."""
        return self.full or bool(self._limits)

    def order(self, user: Ints) -> Ints:
        """Give the order of users, by number, in which they get places."""
        missing = len(self.names) - len(self._hashes)
        if missing:
            self._hashes = np.concatenate(
                [self._hashes, slot_name_hashes(self.names[-missing:], self._key)]
            )

        return np.argsort(self._hashes[user], kind="stable")

    def considered(self, window: Window, sums: UserSums) -> UserSums:
        """Keep who is known in a window, and as many of the others as there are places, in the order of the hash."""
        new = np.flatnonzero(self._slot_since(sums.user) >= self._opens(window))
        if len(new) <= self._most:
            return sums
        new = new[self.order(sums.user[new])]
        self._limits[window] = self._hashes[sums.user[new[self._most - 1]]]

        return self._without(sums, new[self._most :])

    def enter(self, window: Window, sums: UserSums, now: float) -> UserSums:
        """Give places in a window that closes, while there are some; return who takes part."""
        sums = self.considered(window, sums)
        self._limits = {
            open_window: limit
            for open_window, limit in self._limits.items()
            if open_window.end > window.end
        }
        new = np.flatnonzero(~np.isfinite(self._slot_since(sums.user)))
        room = max(self._most - self._taken, 0)

        if len(new) > room:
            new = new[self.order(sums.user[new])]

        self._give(np.sort(sums.user[new[:room]]), now)
        return self._without(sums, new[room:])

    def hopeless(self, names: Sequence[str], windows: Sequence[Window]) -> Bools:
        """Say which new names can get no place in any of some open windows, so that they need not be remembered."""
        if all(self._full_since < self._opens(window) for window in windows):
            return np.ones(len(names), np.bool_)
        limits = [self._limit(window) for window in windows] if self._limits else [None]
        if any(limit is None for limit in limits):
            return np.zeros(len(names), np.bool_)

        return np.asarray(
            slot_name_hashes(names, self._key) > max(limit for limit in limits if limit is not None)
        )

    def take_refused(self) -> int:
        """Private: give how many samples of users without a place were dropped since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def save(self, store: Store) -> None:
        """Write the places that were given since the last time, within a transaction."""
        for user, now in self._new:
            store.put_chunk(_KIND, self._saved, {"user": user, "since": np.array([now])})
            self._saved += 1

        self._new = []

    def restore(self, store: Store) -> None:
        """Continue from what was saved."""
        for number, columns in store.chunks(_KIND):
            self._give(columns["user"], float(columns["since"][0]))
            self._saved = number + 1

        self._new = []

    def _give(self, user: Ints, now: float) -> None:
        if not len(user):
            return
        self._slot_since(user)  # room for them
        self._since[user] = now
        self._taken += len(user)
        self._new.append((user, now))

        if self.full:
            self._full_since = min(self._full_since, now)

    def _slot_since(self, user: Ints) -> Floats:
        """Say since when users have places."""
        missing = len(self.names) - len(self._since)
        self._since = (
            np.concatenate([self._since, np.full(missing, math.inf)]) if missing else self._since
        )

        return self._since[user]

    def _without(self, sums: UserSums, out: Ints) -> UserSums:
        if not len(out):
            return sums
        self._refused += int(sums.count[out].sum())
        keeps = np.ones(len(sums), np.bool_)
        keeps[out] = False

        return sums.take(keeps)

    def _opens(self, window: Window) -> float:
        """Say when the first sample of a window could be accepted."""
        return window.start / MICROS - self._early

    def _limit(self, window: Window) -> np.uint64 | None:
        """Give the hash beyond which no one new is kept in a window.

        Sessions that overlap will be one.
        """
        if self._windows.kind != "session":
            return self._limits.get(window)
        limits = [
            h
            for open_window, h in self._limits.items()
            if open_window.start < window.end and window.start < open_window.end
        ]

        return min(limits, default=None)


_UNKNOWN, _OWN, _ELSEWHERE = range(3)


def users_of_store(store: Store, most: int) -> AgentsOfStore:
    """Tell a source that is shared which users live in the store: those whom it has charged.

    **Privacy.** Of others no one may know yet that they have sent something.
    """
    names = store.agents()
    spent = store.ledger.spent()
    charged = np.flatnonzero(spent[: len(names)] > 0).tolist()
    return AgentsOfStore(names=tuple(names[number] for number in charged), most=most, at_once=False)


class OwnUsers:
    """Says which users of an ended window take part here, and claims those of them who live nowhere yet.

    Parameters
    ----------
    source : Source
        Knows who lives in another store, if it is shared.

    Notes
    -----
    **Privacy.** Claimed is who takes part, when the window has ended, in the order of the reports: all of it is public
    then. That someone who lives elsewhere has sent something here is told to no one but the operator.
    """

    def __init__(self, source: Source) -> None:
        self._source = source if isinstance(source, Claims) else None
        self._fate = np.zeros(0, np.int8)  # by number

    @property
    def asks(self) -> bool:
        """Whether anyone may live in another store."""
        return self._source is not None

    def own(self, user: Ints, names: Sequence[str], *, patient: bool) -> Bools | None:
        """Say which users take part here; None if no one can say just now."""
        if self._source is None:
            return np.ones(len(user), np.bool_)
        self._fate = np.pad(self._fate, (0, len(names) - len(self._fate)))
        unknown = user[self._fate[user] == _UNKNOWN].tolist()

        if unknown:
            elsewhere = self._source.claim([names[number] for number in unknown], patient=patient)
            if elsewhere is None:
                return None
            self._fate[unknown] = [
                _ELSEWHERE if names[number] in elsewhere else _OWN for number in unknown
            ]

        return np.asarray(self._fate[user] == _OWN)
