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
