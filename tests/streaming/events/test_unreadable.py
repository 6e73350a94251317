"""Lines that others may have written: none of them stops the reader of a file or a topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from meanstream.streaming.agents import agents_delivery
from meanstream.streaming.engine import own_events
from meanstream.streaming.kafka.reading import newest_messages
from meanstream.streaming.replay.dead_letters import read_dead_letters
from meanstream.streaming.rounds import rounds_engine
from meanstream.streaming.rounds.rounds_statistician import read_report
from meanstream.streaming.sources import releases_file

NAMES = ("agent", "release_id", "round_id", "user", "time", "zzz")
HOSTILE = {
    "no text": [b'{"%s":"\xff"}' % name.encode() for name in NAMES],
    "brackets": [b'{"%s":%s' % (name.encode(), b"[" * 100_000) for name in NAMES],
    "braces": [b'{"%s":%s' % (name.encode(), b'{"a":' * 100_000) for name in NAMES],
    "a number of a megabyte": [b'{"%s":%s}' % (name.encode(), b"9" * 10**6) for name in NAMES],
    "half a letter": [b'{"%s":"\\ud800"}' % name.encode() for name in NAMES],
    "nothing": [b"", b"{", b"null", b"[]", b"\x00", b'""', b"{}"],
}
READERS: dict[str, tuple[Callable[[bytes], Any], Any]] = {
    "reports": (read_report, None),
    "agents of events": (own_events._agent, ""),
    "charges": (own_events._charged_key, None),
    "estimates": (agents_delivery._estimate_key, None),
    "populations": (agents_delivery._population_key, None),
    "rounds": (rounds_engine._round_key, None),
    "ids of a deployment": (lambda line: newest_messages._is_of("lab", line), False),
    "agents of releases": (lambda line: releases_file._line(line)[0], None),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_line_that_cannot_be_read_is_none(kind: str, reader: str) -> None:
    read, none = READERS[reader]
    for line in HOSTILE[kind]:
        found = read(line)
        assert found in (none, b"") or not any(found), line[:40]  # at most an event without a name


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (HOSTILE["no text"][0], UnicodeDecodeError),
        (HOSTILE["brackets"][-1], RecursionError),
        (b"{", msgspec.DecodeError),
    ],
    ids=["no text", "brackets in a field that no one reads", "half an object"],
)
def test_the_library_says_no_in_three_ways(line: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        own_events._NAMED.decode(line)


def test_dead_letters_that_no_one_can_have_written_are_counted(tmp_path: Path) -> None:
    good = {"reason": "bad_value", "source": "s.csv", "partition": 0, "position": 7, "size": None}
    changes: list[dict[str, Any]] = [
        {name: number} for name in ("partition", "position", "size") for number in (2**63, 10**400)
    ]
    lines = [json.dumps({**good, "schema_version": 1, **change}).encode() for change in changes]
    (tmp_path / "d.jsonl").write_bytes(
        b"\n".join([json.dumps({**good, "schema_version": 1}).encode(), *lines]) + b"\n"
    )
    found = read_dead_letters(str(tmp_path / "d.jsonl"))
    assert (len(found), found.unreadable) == (1, len(changes))
