"""What a user types to name a topic: `kafka://host:9092,host2:9092/topic?group=...`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote

from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.events.event_columns import (
    MOST_TOPICS,
    SEPARATOR,
    joined_topics,
    topics_joined,
)
from meanstream.streaming.kafka.connection.kafka_configuration import Settings, read_configuration

SCHEME = "kafka://"
DEFAULT_GROUP = "meanstream"
MAX_PARTITIONS = 100_000

SOURCE_OPTIONS = ("group", "partitions", "start", "gap", "config", "registry")
SINK_OPTIONS = ("create", "config", "registry", "shared")

_BROKER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_GROUP = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


def is_kafka_location(location: str) -> bool:
    """Say whether a location names a Kafka topic."""
    return location.lower().startswith(SCHEME)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLocation:
    """A topic, and how its brokers are reached.

    Attributes
    ----------
    role : str
        Option that named it ("source", "releases", ...), for messages.
    brokers : str
        Addresses, separated by commas.
    topic : str
        Name of the topic; of a source that may have several, their names, see `each`.
    group : str
        Source: the consumer group under which the owner of each partition and the offsets read are
        noted.
    partitions : tuple of int or None
        Source: the partitions that this store owns; None for all.
    shard : pair of int or None
        Source: this store owns the partitions whose number leaves the remainder k when it is
        divided by N, in place of `partitions`.
    start : {"earliest", "latest"}
        Source: where to begin in partitions that the store has not seen.
    gap : {"refuse", "skip"}
        Source: what to do when retention deleted records that were not read yet.
    create : int or None
        Sink: make the topic with that many partitions if it is missing.
    shared : bool
        Sink: write next to another deployment, where the newest event of a key replaces older ones.
    config : Path or None
        File of librdkafka properties.
    settings : tuple of pairs
        Its content, with secrets filled in; it is in no message and not in the representation.
    registry : str or None
        Address of the Schema Registry by which values are written.
    registry_settings : tuple of pairs
        What the file says of it (`schema.registry.basic.auth.user.info` and others).

    Examples
    --------
    >>> location = KafkaLocation.parse("kafka://127.0.0.1:9092/samples?partitions=0,2-3")
    >>> location.topic, location.partitions, location.group
    ('samples', (0, 2, 3), 'meanstream')
    >>> KafkaLocation.parse("kafka://127.0.0.1:9092/samples?gruop=a")
    Traceback (most recent call last):
    ValueError: source must have options that are known, got 'gruop'; did you mean 'group'?
    """

    role: str
    brokers: str
    topic: str
    group: str = DEFAULT_GROUP
    partitions: tuple[int, ...] | None = None
    shard: tuple[int, int] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    gap: Literal["refuse", "skip"] = "refuse"
    create: int | None = None
    shared: bool = False
    config: Path | None = None
    settings: Settings = field(default=(), repr=False)
    registry: str | None = None
    registry_settings: Settings = field(default=(), repr=False)

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        role: str = "source",
        environment: Mapping[str, str] | None = None,
        several: bool = False,
    ) -> Self:
        """Read an address, and the file of properties that it names."""
        from meanstream.streaming.kafka.connection.schema_registry import PREFIX, registry_address

        brokers, topic, query = _split(text, role, several=several)
        options = _options(query, role)
        config = Path(options["config"]) if "config" in options else None
        start = options.get("start", "earliest")
        gap = options.get("gap", "refuse")
        require(start in ("earliest", "latest"), "start", "be 'earliest' or 'latest'", start)
        require(gap in ("refuse", "skip"), "gap", "be 'refuse' or 'skip'", gap)
        settings = () if config is None else read_configuration(config, environment)

        group = options.get("group", DEFAULT_GROUP)
        require(
            _GROUP.fullmatch(group) is not None, "group", "be 1 to 255 visible characters", group
        )
        whole = "partitions" not in options or SEPARATOR not in topic
        require(
            whole,
            "partitions",
            "be left out with several topics, whose agents one store has",
            options.get("partitions"),
        )

        return cls(
            role=role,
            brokers=brokers,
            topic=topic,
            group=group,
            **_which_partitions(options.get("partitions")),
            start=start,  # type: ignore[arg-type]  # checked above
            gap=gap,  # type: ignore[arg-type]
            create=_count(options["create"]) if "create" in options else None,
            shared=_is_shared(options.get("shared")),
            config=config,
            settings=tuple(pair for pair in settings if not pair[0].startswith(PREFIX)),
            registry=registry_address(options["registry"]) if "registry" in options else None,
            registry_settings=tuple(pair for pair in settings if pair[0].startswith(PREFIX)),
        )

    @property
    def is_part(self) -> bool:
        """Whether other stores own other partitions of the topic."""
        return self.partitions is not None or self.shard is not None

    def own_partitions(self, count: int) -> Sequence[int]:
        """List the partitions that this store owns, of a topic that has that many."""
        if self.shard is not None:
            return range(self.shard[0], count, self.shard[1])
        return self.partitions or range(count)

    def require_partitions(self, count: int) -> None:
        """Refuse partitions that a topic does not have, and shards that share agents."""
        wrong = [p for p in self.partitions or () if p >= count]
        rule = f"be below {count}, as topic {self.topic!r} has them"
        require(not wrong, "partitions", rule, wrong)

        # A key's hash modulo any multiple of N gives the same remainder modulo N.
        rule = f"be a number that divides the {count} partitions of topic {self.topic!r}"
        even = self.shard is None or count % self.shard[1] == 0
        require(even, "shards", rule, self.shard and self.shard[1])

    @property
    def seen_in(self) -> str:
        """Name the file of properties, for the end of a message."""
        if self.config is None:
            return ""
        return f" (see {str(self.config)!r})"

    def each(self) -> list[Self]:
        """Give the location of each of its topics."""
        return [replace(self, topic=topic) for topic in topics_joined(self.topic)]

    def same_cluster(self, other: KafkaLocation) -> bool:
        """Say whether one client can serve both."""
        return self.brokers == other.brokers and self.settings == other.settings

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


MAX_SHARDS = 1024


def parse_shard(option: str, text: str) -> tuple[int, int]:
    """Read which shard it is, and of how many.

    Examples
    --------
    >>> parse_shard("shards", "1/4")
    (1, 4)
    >>> parse_shard("shards", "4/4")
    Traceback (most recent call last):
    ValueError: shards must be K/N with K from 0 to N - 1, got '4/4'
    """
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    good = match is not None and int(match[1]) < int(match[2]) <= MAX_SHARDS
    require(good, option, "be K/N with K from 0 to N - 1", text)
    assert match is not None  # noqa: S101 - it is good
    return int(match[1]), int(match[2])


def _split(text: str, role: str, *, several: bool) -> tuple[str, str, str]:
    form = "be kafka://HOST:PORT/TOPIC?OPTION=VALUE"
    if "@" in text.partition("?")[0]:
        raise ValueError(
            f"{role} must name brokers only, got a user or password before them: use config=FILE"
        )

    address, _, query = text.partition("?")
    require(is_kafka_location(address), role, form, address)
    brokers, _, topic = address[len(SCHEME) :].partition("/")
    for broker in brokers.split(","):
        require(
            _BROKER.fullmatch(broker) is not None, role, f"{form} with brokers HOST:PORT", broker
        )

    topics = topics_joined(topic)
    require(
        several or len(topics) == 1,
        role,
        "be one topic (several are for the source of an engine)",
        topic,
    )
    require(len(topics) <= MOST_TOPICS, role, f"be at most {MOST_TOPICS} topics", len(topics))

    for i, name in enumerate(topics):
        good = _TOPIC.fullmatch(name) is not None and name not in (".", "..")
        require(good, role, f"{form} with a topic of letters, digits, '.', '_' and '-'", name)
        require(name not in topics[:i], role, "name each topic once", name)

    return brokers, joined_topics(topics), query


def _options(query: str, role: str) -> dict[str, str]:
    own, others = (
        (SOURCE_OPTIONS, SINK_OPTIONS) if role == "source" else (SINK_OPTIONS, SOURCE_OPTIONS)
    )
    options: dict[str, str] = {}

    for option in query.split("&") if query else ():
        name, _, value = option.partition("=")
        value = unquote(value)

        if name not in own and name in others:
            side = "read from" if role == "source" else "written to"
            raise ValueError(
                f"{role} must have options of a topic that is {side}, got {name!r}; {', '.join(own)}"
            )

        if name not in own:
            raise ValueError(
                f"{role} must have options that are known, got {name!r}{closest_valid(name, own)}"
            )
        if name in options:
            raise ValueError(f"{role} must have each option once, got {name!r} again")

        if not value:
            raise ValueError(f"{name} must have a value, got none")
        options[name] = value

    return options


def _which_partitions(text: str | None) -> dict[str, Any]:
    """Read which partitions a store owns: numbers and ranges, or those of a shard."""
    if text is None:
        return {}
    if "/" in text:
        return {"shard": parse_shard("partitions", text)}
    return {"partitions": _partitions(text)}


def _partitions(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for range_text in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", range_text)
        if match is None:
            raise ValueError(f"partitions must be numbers and ranges such as 0,2-3, got {text!r}")
        first = int(match[1])
        last = int(match[2] or match[1])
        require(
            first <= last < MAX_PARTITIONS,
            "partitions",
            f"be ranges from low to high below {MAX_PARTITIONS}",
            range_text,
        )
        numbers += range(first, last + 1)

    require(len(set(numbers)) == len(numbers), "partitions", "be distinct", text)
    return tuple(sorted(numbers))


def _is_shared(text: str | None) -> bool:
    require(text in (None, "1"), "shared", "be 1, or left out", text)
    return text is not None


def _count(text: str) -> int:
    ok = re.fullmatch(r"\d{1,6}", text) is not None and 1 <= int(text) < MAX_PARTITIONS
    require(ok, "create", "be a number of partitions from 1 on", text)
    return int(text)
