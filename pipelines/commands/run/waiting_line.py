"""`--wait-for`: brokers that are away at the start are waited for.

What can never succeed is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from meanstream.operators.durations import parse_duration
from meanstream.pipelines.options.base import OPTION_OF, option_location
from meanstream.pipelines.options.option_errors import RunFailed, refusing_options
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location

if TYPE_CHECKING:
    from meanstream.pipelines.options.stream_options import StreamOptions
    from meanstream.streaming.engine.engine_health import EngineHealth


def wait_for_brokers(
    options: StreamOptions, *, stop: Callable[[], bool], health: EngineHealth | None = None
) -> None:
    """Wait until the brokers of the source and of every sink answer."""
    places = [("source", option_location(options.source)), *broker_locations(options.sinks)]
    if getattr(options, "reports_only", None) is not None:
        places.append(("stages", str(getattr(options, "stages", ""))))

    wait_for_addresses(places, options.wait_for, stop=stop, health=health)


def broker_locations(sinks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give the places of sinks with the option that names each."""
    return [(OPTION_OF.get(role, role), place) for role, place in sinks.items()]


def wait_for_addresses(
    places: Iterable[tuple[str, str]],
    wait_for: str,
    *,
    stop: Callable[[], bool],
    health: EngineHealth | None = None,
) -> None:
    """Wait for the topics among some places, each the value of an option.

    See `wait_for_brokers`.
    """

    def noted(what: str) -> None:
        if health is not None:
            health.waiting(what)

        if stop():
            raise RunFailed(f"stopped while {what}")

    with refusing_options():
        seconds = parse_duration("wait_for", wait_for)
        topics = [
            one
            for option, place in places
            if is_kafka_location(place)
            for one in KafkaLocation.parse(place, role=option, several=option == "source").each()
        ]

        if not topics:
            return
        from meanstream.streaming.kafka.connection.kafka_topics import wait_for_first_answers

        wait_for_first_answers(topics, seconds, noted)

    if health is not None:
        health.waiting(None)
