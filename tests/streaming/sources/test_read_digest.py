"""The digest by which a file is recognized: of the bytes alone, however they are taken, and of each
of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from meanstream.streaming.sources.read_digest import END_BYTES, LEAF_BYTES, ReadDigest

TEXT = np.random.default_rng(5).bytes(3 * LEAF_BYTES + 77)


def digest(*pieces: bytes) -> str:
    found = ReadDigest()
    for piece in pieces:
        found.take(piece)
    return found.text()


@pytest.mark.parametrize(
    "size", [1000, LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 1, 2 * LEAF_BYTES + 5, len(TEXT)]
)
def test_the_size_of_pieces_changes_nothing(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    assert digest(*pieces) == digest(TEXT)


def test_a_digest_on_the_way_is_that_of_what_was_taken() -> None:
    found = ReadDigest()
    for start, stop in pairwise((0, 10, LEAF_BYTES, LEAF_BYTES + 9, len(TEXT))):
        found.take(TEXT[start:stop])
        assert found.text() == digest(TEXT[:stop])
        assert found.end == TEXT[max(stop - END_BYTES, 0) : stop]


def test_every_change_shows() -> None:
    leaf = LEAF_BYTES
    places = [(at, bit) for at in (0, leaf, len(TEXT) - 1) for bit in (0, 7)]
    changed = [TEXT[:at] + bytes([TEXT[at] ^ 1 << bit]) + TEXT[at + 1 :] for at, bit in places]
    moved = TEXT[leaf : 2 * leaf] + TEXT[:leaf] + TEXT[2 * leaf :]
    swapped = TEXT[16:32] + TEXT[:16] + TEXT[32:]
    shorter, longer, empty = TEXT[:-1], TEXT + b"\0", b""
    whole, zero = TEXT[:leaf], TEXT[:leaf] + b"\0"
    texts = [TEXT, *changed, moved, swapped, shorter, longer, empty, whole, zero]
    assert len({digest(text) for text in texts}) == len(texts)


def test_what_is_thrown_away_counts_when_the_rest_of_its_line_is_taken() -> None:
    found = ReadDigest()
    found.take(TEXT[:100])
    before = found.text()
    found.throw_away(TEXT[100 : 100 + LEAF_BYTES])
    assert found.text() == before
    found.take(TEXT[100 + LEAF_BYTES :])
    assert found.text() == digest(TEXT)
