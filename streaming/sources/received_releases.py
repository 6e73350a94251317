"""Releases as those receive them who did not make them.

Every line checked, each release once, everyone's latest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from meanstream.operators.agents.release_checks import REASONS as IMPOSSIBLE
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.records import VOTE_BINS, Bools, Floats, ReleaseColumns
from meanstream.streaming.events.wire import Release, SampleCounts, SpreadVotes, release_ids

MAX_INTEGER = 2**63 - 1
MAX_COUNT = 2**40
"""Of pairs, or samples, in one bin: sums over all agents stay exact."""

NOT_RECEIVED = (
    *(
        "malformed",
        "unknown_schema_version",
        "wrong_id",
        "wrong_key",
        "tombstone",
        "duplicate",
        "superseded",
    ),
    *("conflict", *IMPOSSIBLE),
)
"""Why a line is left out; see `ReceivedReleases`."""

Line = tuple[bytes | None, bytes | None]
"""Key and value of a record."""

Columns = dict[str, npt.NDArray[Any]]

_EXTRAS = ("time", "epsilon", "delta", "tuned", "vote_variance", "histogram_variance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """Public: releases in the order in which they were received, one entry each.

    Attributes
    ----------
    names : list of str
        The directory of agents so far; it only grows, and all that comes from one place shares it.
    columns : ReleaseColumns
        The releases; `agent` is an index into `names`.
    time : float array
        Event time at which each became due, seconds since the epoch.
    epsilon, delta : float array
        What the releases of its agent spend over the life of its stream.
    tuned : bool array
        Whether its mode is "tuned"; otherwise "paper".
    vote_variance : float array
        Of the noise of one bin of a spread vote; 0 where there is none.
    histogram_variance : float array
        Of the noise of one bin of a histogram; 0 where there is none.
    """

    names: list[str]
    columns: ReleaseColumns
    time: Floats
    epsilon: Floats
    delta: Floats
    tuned: Bools
    vote_variance: Floats
    histogram_variance: Floats

    def __len__(self) -> int:
        return len(self.time)


class ReceivedReleases:
    """Checks releases as they come and keeps everyone's latest.

    What is no valid release, or was there before, is left out and counted by reason:

    - `malformed`, `unknown_schema_version`: not an event of type `release`
    - `wrong_id`, `wrong_key`: its id is not that of its agent and index; its key is not its agent
    - `tombstone`: a key without a value
    - `duplicate`: the agent's latest release again
    - `superseded`: older than the agent's latest release
    - `conflict`: another release under the id of the agent's latest; the first one stays
    - `impossible_index`, `impossible_count`, `impossible_total`, `impossible_mean`, `too_precise`, `too_vague`: not
      one that the settings allow (`PossibleReleases`)

    Parameters
    ----------
    possible : PossibleReleases, optional
        What a federation has agreed on. Without it whatever has the form of a release is taken: for
        reading what one has made oneself.

    Attributes
    ----------
    names : list of str
        All agents that were met, in this order.
    rejected : Counter of str
        Lines that were left out, by reason.

    Examples
    --------
    >>> line = (b'{"release_id":"lab/ann:2","agent":"ann","index":2,"time":"2013-01-01T10:00:00Z","n":20,"total":640,'
    ...         b'"mean":0.5,"noise_variance":0.01,"epsilon":1.0,"delta":1e-6,"mode":"tuned","schema_version":1}')
    >>> received = ReceivedReleases()
    >>> received.take([(b"ann", line), (b"ann", line), (b"bob", b"{}")]).columns.mean
    array([0.5])
    >>> received.latest().columns.index, received.rejected
    (array([2]), Counter({'duplicate': 1, 'malformed': 1}))
    """

    def __init__(self, possible: PossibleReleases | None = None) -> None:
        self._possible = possible
        histogram = None if possible is None else possible.settings.histogram
        self._bins = 0 if histogram is None else histogram.bins
        self.names: list[str] = []
        self.rejected: Counter[str] = Counter()
        self._codes: dict[str, int] = {}
        self._ids: list[str] = []  # by agent: what its release ids begin with
        self._newest: list[tuple[int, int]] = []  # by agent: index and noised sum
        self._latest = received_release_columns([], self._bins)  # by agent, with room for more
        self._all: dict[tuple[int, int], int] | None = None  # noised sum, by agent and index

    def remember_all(self) -> None:
        """From now on find a second value of any release, not of the newest of its agent alone."""
        self._all = {}

    def take(self, lines: Iterable[Line]) -> Releases:
        """Read lines, each with its key; give the releases that are new, in their order."""
        agent: list[int] = []
        events: list[Release] = []
        for event, reason in self._checked(lines):
            why = reason or (self._enter(event) if event is not None else "")
            if event is None or why:
                self.rejected[why] += 1
            else:
                agent.append(self._codes[event.agent])
                events.append(event)

        columns = received_release_columns(events, self._bins)
        self._remember(agent, columns)
        return self._releases(agent, columns)

    def _checked(self, lines: Iterable[Line]) -> Iterable[tuple[Release | None, str]]:
        """Read lines, each by itself.

        Say why one is no release, or none that can have been made.
        """
        read: list[tuple[Release | None, str]] = []
        for key, value in lines:
            event, reason = (None, "tombstone") if value is None else _parse(value)
            if event is not None and key != event.agent.encode():
                reason = "wrong_key"

            read.append((event, reason))

        good = [event for event, reason in read if event is not None and not reason]
        if self._possible is None or not good:
            return read
        reasons = iter(self._possible.reasons(_release_columns_of(good)).tolist())

        return [
            (event, reason or (next(reasons) if event is not None else ""))
            for event, reason in read
        ]

    def latest(self) -> Releases:
        """Give the newest release of each agent, in the order of `names`."""
        n = len(self.names)
        return self._releases(
            range(n), {name: column[:n].copy() for name, column in self._latest.items()}
        )

    def restore(self, latest: Releases) -> None:
        """Continue from everyone's latest release; call before the first line."""
        records = latest.columns
        columns = {
            name: getattr(records if hasattr(records, name) else latest, name)
            for name in self._latest
        }
        self.names[:] = latest.names
        self._codes = {name: code for code, name in enumerate(self.names)}

        self._ids = list(map(_id_of_agent, self.names))
        self._newest = list(
            zip(latest.columns.index.tolist(), latest.columns.total.tolist(), strict=True)
        )
        self._remember(range(len(self.names)), columns)

    def _enter(self, event: Release) -> str:
        """Make a release its agent's newest; if it is not, say why."""
        # The id must be that of the agent and index it says, in whatever deployment.
        code = self._codes.get(event.agent, len(self.names))
        new = code == len(self.names)
        _, _, own = event.release_id.rpartition(
            "/"
        )  # what comes before is the name of its deployment

        if own != f"{_id_of_agent(event.agent) if new else self._ids[code]}{event.index}":
            return "wrong_id"

        # A new agent has the next number.
        if new:
            self._codes[event.agent] = code
            self.names.append(event.agent)
            self._ids.append(_id_of_agent(event.agent))
            self._newest.append((0, 0))

        # All releases are remembered only where two that differ must be found.
        if (
            self._all is not None
            and self._all.setdefault((code, event.index), event.total) != event.total
        ):
            return "conflict"

        # Only a newer release replaces what is known; the same one again is no news.
        index, total = self._newest[code]
        if event.index < index:
            return "superseded"

        if event.index == index:
            if event.total == total:
                return "duplicate"
            return "conflict"

        self._newest[code] = (event.index, event.total)
        return ""

    def _remember(self, agent: Sequence[int], columns: Columns) -> None:
        # Room for new agents, before their columns are written.
        missing = len(self.names) - len(self._latest["time"])
        for name, column in columns.items():
            if missing > 0:
                room = np.zeros((missing + len(self.names), *column.shape[1:]), column.dtype)
                self._latest[name] = np.concatenate([self._latest[name], room])

            self._latest[name][agent] = column  # of several releases of an agent the last one stays

    def _releases(self, agent: Sequence[int], columns: Columns) -> Releases:
        fields = dict(columns)
        own = {name: fields.pop(name) for name in _EXTRAS}
        return Releases(
            names=self.names,
            columns=ReleaseColumns(agent=np.array(agent, np.int64), **fields),
            **own,
        )


def _parse(value: bytes) -> tuple[Release | None, str]:
    """Read one line; if it is no release, say why."""
    # Why a line is no release is told without what it holds.
    try:
        event = Release.model_validate_json(value)
    except ValidationError as error:
        wrong = {fault["loc"][:1] for fault in error.errors(include_input=False, include_url=False)}
        return None, "unknown_schema_version" if ("schema_version",) in wrong else "malformed"

    if is_received_counted(event):
        return (event, "")
    return (None, "malformed")


def is_received_counted(event: Release) -> bool:
    """Tell whether the whole numbers of a release are such that one can compute with them."""
    # Whole numbers that float64 holds exactly.
    votes = event.votes
    told = event.histogram
    few = votes is None or max(votes.number, votes.pairs, *map(abs, votes.counts)) <= MAX_COUNT
    few &= told is None or max(told.number, told.samples, *map(abs, told.counts)) <= MAX_COUNT

    return few and max(event.index, event.n, abs(event.total)) <= MAX_INTEGER


def _id_of_agent(name: str) -> str:
    """Give what comes before the index in the ids of an agent's releases."""
    return release_ids([name], [0], [0])[0].removesuffix("0")


def _release_columns_of(events: Sequence[Release]) -> ReleaseColumns:
    """Give releases as columns; no one has a number yet."""
    found = received_release_columns(events)
    kept = {name: found[name] for name in ("index", "count", "total", "mean", "noise_variance")}
    return ReleaseColumns(agent=np.zeros(len(events), np.int64), **kept)


def received_release_columns(events: Sequence[Release], bins: int = 0) -> Columns:
    """Give everything but the agents, as arrays; of histograms those of that many bins."""
    whole = np.int64
    real = np.float64
    return {
        "index": np.array([e.index for e in events], whole),
        "count": np.array([e.n for e in events], whole),
        "total": np.array([e.total for e in events], whole),
        "mean": np.array([e.mean for e in events], real),
        "noise_variance": np.array([e.noise_variance for e in events], real),
        "time": np.array([e.time.timestamp() for e in events], real),
        "epsilon": np.array([e.epsilon for e in events], real),
        "delta": np.array([e.delta for e in events], real),
        "tuned": np.array([e.mode == "tuned" for e in events], np.bool_),
        "votes": np.array([_votes(e.votes) for e in events], whole).reshape(-1, 2 + VOTE_BINS),
        "vote_variance": np.array(
            [0.0 if e.votes is None else e.votes.noise_variance for e in events], real
        ),
        "histogram": np.array([_counts(e.histogram, bins) for e in events], whole).reshape(
            len(events), 2 + bins if bins else 0
        ),
        "histogram_variance": np.array(
            [0.0 if (h := e.histogram) is None else h.noise_variance for e in events], real
        ),
    }


def _votes(votes: SpreadVotes | None) -> tuple[int, ...]:
    if votes is None:
        return (0,) * (2 + VOTE_BINS)
    return (votes.number, votes.pairs, *votes.counts)


def _counts(told: SampleCounts | None, bins: int) -> tuple[int, ...]:
    if not bins:
        return ()

    if told is None or len(told.counts) != bins:
        return (0,) * (2 + bins)
    return (told.number, told.samples, *told.counts)
