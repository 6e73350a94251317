"""Buckets and topics that a job on Dataflow reads and writes, checked before a pipeline is built."""

from __future__ import annotations

import importlib.util
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_source import file_in_bucket
from meanstream.pipelines.beam.pubsub.pubsub_client import check_pubsub_name
from meanstream.pipelines.options.base import OPTION_OF
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

PUBSUB = "projects/"
"""Names of topics and subscriptions begin with it."""
TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})
PACKED = frozenset({".gz", ".zip"})


def is_file(location: str) -> bool:
    """Whether a location is a file, and not a topic or a subscription."""
    return not is_kafka_location(location) and not location.startswith(PUBSUB)


def is_endless(options: AgentsOptions | RoundsOptions) -> bool:
    """Whether the source never ends."""
    return not is_file(str(options.source)) and not options.until_end


def check_locations(options: AgentsOptions | RoundsOptions) -> None:
    """Refuse what a job cannot read or write, and two sinks at one location.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    source = str(options.source)
    _check_source(source, until_end=options.until_end)

    if is_file(source):
        rule = "be left out where the source is a file"
        refresh = getattr(options, "refresh", None)
        require(options.dead_letters is None, "dead_letters", rule, options.dead_letters)
        require(refresh is None, "refresh", rule, refresh)

    endless = is_endless(options)
    names = {source.partition("?")[0]: "source"}
    for role, location in options.sinks.items():
        name = OPTION_OF.get(role, role)
        first = names.setdefault(location.partition("?")[0], name)
        require(first == name, name, f"be another place than {first}", location)
        _check_sink(name, location, endless=endless)


def _check_source(source: str, *, until_end: bool) -> None:
    """Refuse what a job cannot read."""
    if is_kafka_location(source):
        gap = KafkaLocation.parse(source).gap
        require(
            gap == "refuse", "gap", "be 'refuse' on Beam (a range is read whole or not at all)", gap
        )

        return

    rule = "be left out where the source is no Kafka topic"
    require(not until_end, "until_end", rule, until_end)

    if not is_file(source):
        check_pubsub_name("source", "subscriptions", source)
        return

    suffixes = [suffix for suffix in PurePosixPath(source).suffixes if suffix not in PACKED]
    is_table = file_in_bucket(source) and suffixes[-1:] != [] and suffixes[-1] in TABLES
    rule = "be gs://BUCKET/FILE of type .csv, .tsv, .jsonl, .ndjson or .parquet, or a topic"
    require(is_table, "source", f"{rule}, with DataflowRunner", source)
    _check_connectors("source", source)


def _check_sink(name: str, location: str, *, endless: bool) -> None:
    """Refuse what a job cannot write."""
    if is_kafka_location(location):
        KafkaLocation.parse(location, role=name)
        return

    if not is_file(location):
        check_pubsub_name(name, "topics", location)
        return

    require(not endless, name, "be a topic where the source has no end", location)
    require(name != "dead_letters", name, "be a topic", location)
    is_lines = file_in_bucket(location) and location.endswith(".jsonl")
    rule = "be gs://BUCKET/FILE.jsonl or a topic, with DataflowRunner"
    require(is_lines, name, rule, location)
    _check_connectors(name, location)


def _check_connectors(name: str, location: str) -> None:
    """Refuse a bucket where Beam could not open it."""
    google = importlib.util.find_spec("google.cloud")
    storage = None if google is None else importlib.util.find_spec("google.cloud.storage")
    rule = "be a topic, unless Beam's connectors are installed: pip install 'meanstream[gcp]'"
    require(storage is not None, name, rule, location)
