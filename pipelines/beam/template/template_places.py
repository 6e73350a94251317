"""Where a template reads and writes, checked before a pipeline is built."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.files import file_in_bucket
from meanstream.pipelines.beam.pubsub.pubsub_names import check_pubsub_name
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.pipelines.options.base import OPTION_OF
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location

PUBSUB = "projects/"
"""Names of topics and subscriptions begin with it."""


def is_template_file_place(place: str) -> bool:
    """Say whether a place is a file, on a disk or in a bucket, and not a topic or a subscription."""
    return not is_kafka_location(place) and not place.startswith(PUBSUB)


def check_template_source_place(
    source: str, *, until_end: bool, idle_seconds: float | None
) -> None:
    """Refuse what a pipeline cannot read.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """
    if is_kafka_location(source):
        place = KafkaLocation.parse(source)
        require(
            place.gap == "refuse",
            "gap",
            "be 'refuse' on Beam (a range is read whole or not at all)",
            place.gap,
        )

        return

    for name, given in (("until_end", until_end or None), ("idle_seconds", idle_seconds)):
        require(given is None, name, "be left out where the source is no Kafka topic", given)

    if is_template_file_place(source):
        _check_bucket("source", source)
    else:
        check_pubsub_name("source", "subscriptions", source)


def is_template_endless_place(source: str, *, until_end: bool) -> bool:
    """Say whether a source never ends."""
    return not is_template_file_place(source) and not until_end


def check_template_sink_places(sinks: Mapping[str, str], source: str, *, until_end: bool) -> None:
    """Refuse places that cannot hold what would come, and two sinks in one place.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """
    taken = {source.partition("?")[0]: "source"}
    for role, place in sinks.items():
        name = OPTION_OF.get(role, role)
        other = taken.setdefault(place.partition("?")[0], name)
        require(other == name, name, f"be another place than {other}", place)

        if not is_template_file_place(place):
            _ = (
                KafkaLocation.parse(place, role=name)
                if is_kafka_location(place)
                else check_pubsub_name(name, "topics", place)
            )
            continue

        require(
            not is_template_endless_place(source, until_end=until_end),
            name,
            "be a topic where the source has no end",
            place,
        )
        require(role != "dead_letters", name, "be a topic", place)
        _check_bucket(name, place)


def check_template_letters_place(place: str | None, source: str) -> None:
    """Refuse dead letters of a file: on Beam those are counted only."""
    require(
        place is None or not is_template_file_place(source),
        "dead_letters",
        "be left out where the source is a file",
        place,
    )


def template_secret_place(text: str) -> SecretLocation:
    """Tell a file from a version in Secret Manager."""
    return SecretLocation(file=text) if text.startswith("/") else SecretLocation(resource=text)


def _check_bucket(name: str, place: str) -> None:
    if file_in_bucket(place):
        there = importlib.util.find_spec("google.cloud") is not None and importlib.util.find_spec(
            "google.cloud.storage"
        )
        require(
            bool(there),
            name,
            "be a path, unless Beam's connectors are there: pip install 'meanstream[gcp]'",
            place,
        )
