"""How late samples may be where nobody says so.

As the store that is continued has it, else as the source needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SUBSCRIPTION = re.compile(r"projects/[^/]+/subscriptions/[^/]+")


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind the newest event a sample may arrive, in seconds, and why."""

    seconds: float
    why: str

    @property
    def text(self) -> str:
        """As it is typed."""
        from meanstream.operators.durations import duration_text

        if self.seconds:
            return duration_text(self.seconds)
        return "0s"


def lateness_of_file_that_ends(source: str | None, given: str | None) -> Lateness | None:
    """Give the lateness of rounds of a file that ends, which is none at all.

    None for other sources.

    Raises
    ------
    ValueError
        If one is given.
    """
    from meanstream.operators.validation import require
    from meanstream.pipelines.options.shared_options import is_live_source

    if source is None or is_live_source(source) or _SUBSCRIPTION.fullmatch(source):
        return None
    require(
        given is None,
        "allowed_lateness",
        "be left out for a file that ends: no sample of it is late",
        given,
    )

    return Lateness(0.0, "no sample of a file that ends is late")


def _default_lateness(source: str | None, *, sort: bool) -> tuple[str, str]:
    """Give the lateness that suits a source, and why.

    Examples
    --------
    >>> _default_lateness("kafka://127.0.0.1:9092/samples", sort=True)
    ('10s', 'a topic is read as it is written')
    >>> _default_lateness("flights.csv", sort=True), _default_lateness("flights.csv", sort=False)
    (('0s', 'the file is read in event-time order'), ('1h', 'the file is read as it stands'))
    """
    from meanstream.pipelines.options.shared_options import is_live_source
    from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location

    if source is not None and is_kafka_location(source):
        return "10s", "a topic is read as it is written"
    if source is not None and is_live_source(source):
        return "10s", "lines are read as they are written"
    if source is not None and _SUBSCRIPTION.fullmatch(source):
        return "1m", "a subscription delivers in any order"

    if sort:
        return "0s", "the file is read in event-time order"
    return "1h", "the file is read as it stands"


def lateness_in_force(
    option: str, given: str | None, *, source: str | None, sort: bool, store: Path | None = None
) -> Lateness:
    """Say how late samples may be.

    Parameters
    ----------
    option : str
        Name of the option.
    given : str or None
        What it was given.
    source : str or None
        A file or a topic.
    sort : bool
        Whether a file is sorted.
    store : Path, optional
        The store of the run: what it was begun with stays.

    Raises
    ------
    ValueError
        If what was given is no duration.
    """
    from meanstream.operators.durations import parse_duration
    from meanstream.streaming.store.source_identity import saved_lateness

    if given is not None:
        return Lateness(parse_duration(option, given), "as it was given")
    begun = None if store is None else saved_lateness(store, option)
    if begun is not None:
        return Lateness(begun, "the store was begun with it")

    text, why = _default_lateness(source, sort=sort)
    return Lateness(parse_duration(option, text), why)


DEFAULT_REFRESH = "10s"
"""Of a source without end. A constant: when estimates are written is a public fact."""
NEVER = "never"


@dataclass(frozen=True, slots=True)
class Refresh:
    """How often estimates are written, in seconds of event time (None: not before the end), and why.

    `quorum` agents must have reached a time before event time has.
    """

    seconds: float | None
    why: str
    quorum: int = 1

    @property
    def text(self) -> str:
        """As it is typed; "at the end" where there is none."""
        from meanstream.operators.durations import duration_text

        if self.seconds is None:
            return "at the end"

        if self.seconds:
            return duration_text(self.seconds)
        return "0s"

    def first_due(self, lateness: str) -> str:
        """Say when the first estimate can be expected.

        Examples
        --------
        >>> Refresh(10.0, "as it was given", quorum=2).first_due("1m")
        'when samples of two agents are 1m past the first one'
        """
        if self.seconds is None:
            return "at the end of the source"
        whose = "a sample is" if self.quorum == 1 else "samples of two agents are"
        return f"when {whose} {lateness} past the first one"


def is_endless_source(source: str | None, *, ends: bool) -> bool:
    """Say whether a source never ends.

    A topic that is not read up to an end, a growing file, a subscription.

    Examples
    --------
    >>> [is_endless_source(one, ends=False) for one in ("kafka://broker:9092/samples", "follow:a.jsonl", "a.csv", "-")]
    [True, True, False, False]
    """
    from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location

    if source is None:
        return False
    topic = is_kafka_location(source) or _SUBSCRIPTION.fullmatch(source) is not None

    return source.startswith("follow:") or (topic and not ends)


def refresh_in_force(
    given: str | None, *, source: str | None, ends: bool, quorum: int = 1
) -> Refresh:
    """Say how often estimates are written.

    Parameters
    ----------
    given : str or None
        A duration, or "never": not before the end.
    source : str or None
        A file, a topic or a subscription.
    ends : bool
        Whether a topic is read up to an end.
    quorum : int
        Agents that must have reached a time before event time has.

    Raises
    ------
    ValueError
        If what was given is neither.

    Notes
    -----
    **Privacy.** The default depends on the kind of source alone, so that when estimates are written says nothing of
    anybody's values.

    Examples
    --------
    >>> refresh_in_force(None, source="kafka://broker:9092/samples", ends=False)
    Refresh(seconds=10.0, why='default of a source without end', quorum=1)
    >>> refresh_in_force(None, source="flights.csv", ends=False).text
    'at the end'
    """
    from meanstream.operators.durations import parse_duration

    if given == NEVER:
        return Refresh(None, "as it was given", quorum)
    if given is not None:
        return Refresh(parse_duration("refresh", given), "as it was given", quorum)
    if is_endless_source(source, ends=ends):
        return Refresh(
            parse_duration("refresh", DEFAULT_REFRESH), "default of a source without end", quorum
        )

    return Refresh(None, "default of a source that ends", quorum)
