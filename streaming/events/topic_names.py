"""Several topics as one source.

Its name is theirs, and the numbers of its partitions tell topic and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meanstream.operators.records import Ints
from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import PARTITION_SHIFT

SEPARATOR = ","
"""Between the names of topics; none can have it."""
TOPIC_SHIFT = 13
"""A number holds the topic, counted from 1, in the bits above these; of a source that is no topics
they are 0."""
MOST_TOPICS = 32
MOST_PARTITIONS = 1 << TOPIC_SHIFT
"""Of one topic among several."""


def joined_topics(topics: Iterable[str]) -> str:
    """Give the name of a source, which is the same in whichever order its topics are written."""
    return SEPARATOR.join(sorted(topics))


def topics_joined(source: str) -> tuple[str, ...]:
    """Give the topics of a source; of another source than topics its own name."""
    return tuple(source.split(SEPARATOR))


def topics_partition(topic: int, partition: int, name: str) -> int:
    """Give the number of a partition of one topic among several."""
    require(
        partition < MOST_PARTITIONS,
        "source",
        f"have below {MOST_PARTITIONS} partitions in a source of several topics",
        name,
    )

    return (topic + 1) << TOPIC_SHIFT | partition


def topic_partition(source: str, partition: int) -> tuple[str, int]:
    """Give the name and the partition under which others know the partition of a source.

    Examples
    --------
    >>> topic_partition("orders,returns", topics_partition(1, 3, "returns"))
    ('returns', 3)
    >>> topic_partition("a,b.csv", 0)
    ('a,b.csv', 0)
    """
    names = topics_joined(source)
    topic = partition >> TOPIC_SHIFT
    if len(names) == 1 or not topic:
        return source, partition

    return names[topic - 1], partition & (MOST_PARTITIONS - 1)


def topics_position(topic: int, position: Ints) -> Ints:
    """Give positions of records of one topic as those of a source of several."""
    return position + ((topic + 1) << (TOPIC_SHIFT + PARTITION_SHIFT))


def topics_own_positions(topic: int, position: Ints) -> Ints:
    """Select the positions that are of one topic among several, and give them as those of that topic alone."""
    shift = TOPIC_SHIFT + PARTITION_SHIFT
    own: Ints = position[position >> shift == topic + 1]
    return own & ((1 << shift) - 1)


def topics_index(source: str, name: str) -> int | None:
    """Say which of the topics of a source has a name.

    None if it is no source of several, or none has.
    """
    names: Sequence[str] = topics_joined(source)

    if len(names) > 1 and name in names:
        return names.index(name)
    return None
