"""What a topic holds of a deployment: charged events whose ids begin with its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec

from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.events.wire import release_ids
from meanstream.streaming.kafka.connection.kafka_client import KafkaLostError
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import HEADERS
from meanstream.streaming.kafka.reading.scan import READ_RECORDS, TopicScan, scan_values

LOOK_BACK = 100_000
"""So many records of each partition are looked at, the newest; a compacted topic holds about one of
each agent."""


FEW_BACK = 1_000
"""So many records of each partition are looked at for headers of other deployments."""

DEPLOYMENT = "deployment"
"""Header of each record: the name of the deployment that wrote it."""


class _Ids(msgspec.Struct):
    release_id: str = ""
    round_id: str = ""


_IDS = msgspec.json.Decoder(_Ids)


def newest_events(location: KafkaLocation, name: str) -> Iterator[bytes]:
    """Give the newest events that are charged to a deployment, of at most `LOOK_BACK` records of each partition."""
    return (
        value for value in scan_values(location, newest=LOOK_BACK) if value and _is_of(name, value)
    )


def other_deployments(location: KafkaLocation, name: str) -> list[str]:
    """Name the other deployments that the headers of the newest records of a topic tell of."""
    others: set[str] = set()
    try:
        with closing(TopicScan(location, newest=FEW_BACK, beside=(HEADERS,))) as scan:
            while (records := scan.read(READ_RECORDS)) is not None:
                for headers in records.beside[HEADERS]:
                    written = headers.get(DEPLOYMENT)
                    if written is not None:
                        others.add(written.decode(errors="replace"))
    except KafkaLostError as error:
        raise ValueError(str(error)) from None

    return sorted(others - {name})


def _is_of(name: str, value: bytes) -> bool:
    """Say whether an event has an id of a deployment; what is no event has none.

    Examples
    --------
    >>> _is_of("delays", b'{"release_id":"delays/ann:2"}'), _is_of("delay", b'{"release_id":"delays/ann:2"}')
    (True, False)
    >>> _is_of("my lab", b'{"release_id":"my%20lab/ann:2"}')
    True
    """
    try:
        ids = _IDS.decode(value)
    except UNREADABLE:
        return False

    encoded = release_ids([""], [0], [0], deployment=name)[0].partition("/")[0]
    return ids.release_id.startswith(f"{encoded}/") or ids.round_id.startswith(f"{name}/")
