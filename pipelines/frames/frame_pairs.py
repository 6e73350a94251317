"""The order of a frame's rows, and the pairs of them that votes compare: neither is that of the frame.

A frame may come sorted by its values, so that where a row stands says what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanstream.operators.agents.vote_of_spread import ContentPairs, content_pairs
from meanstream.operators.noise.draw_owners import FRAME_ROWS
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Ints, Words
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.streaming.agents.forget_agent import ROWS_READ

PAIRS = "pairs by content"
"""Purpose of the key that decides which rows are a pair."""


def row_digests(noise: KeyedNoise, grid: FixedPoint, samples: FrameSamples) -> Words:
    """Private: reduce each row to 64 bits of its group, value on the grid, time and person.

    Notes
    -----
    **Privacy.** The digests are keyed with the secret of the store: anyone who has the store's file alone cannot test a
    guess of a value. Two rows of different content share one with a probability of 2**-64.
    """
    keyed = noise.derived(ROWS_READ, {})
    owner = keyed_owner_words(samples.names).reshape(-1, 2)[samples.group]
    point = np.ascontiguousarray(grid.encode(samples.value), np.int64)
    parts = [point.view(np.uint64)]

    if samples.time is not None:
        parts.append((samples.time + 0.0).view(np.uint64))

    person = samples.person_hashes()
    if person is not None:
        parts.append(person)

    digest = np.zeros(len(point), np.uint64)
    for index, words in enumerate(parts):
        ids = NoiseIds(owner, np.full(len(point), index, np.int64), digest ^ words)
        digest = keyed.bits(ids, FRAME_ROWS.at())[:, 0]

    return digest


def content_order(samples: FrameSamples, digests: Words) -> Ints:
    """Order rows by event time, where they have one, by group and by what they hold under a key.

    Rows with the same digest are equal in all that counts.
    """
    if samples.time is None:
        return np.lexsort((digests, samples.group))
    return np.lexsort((digests, samples.group, samples.time))


def frame_pairs(
    samples: FrameSamples, rows: Ints | slice, grid: FixedPoint, noise: KeyedNoise
) -> ContentPairs:
    """Pair some rows of each group by what they hold."""
    return content_pairs(
        samples.group[rows],
        np.ascontiguousarray(grid.encode(samples.value[rows]), np.int64),
        grid.span,
        keyed_owner_words(samples.names).reshape(-1, 2),
        noise.derived(PAIRS, {}),
    )


def pairs_of_agents(
    pairs: ContentPairs, groups: Sequence[str], agents: Sequence[str]
) -> ContentPairs:
    """Give pairs of groups to the agents of these names, which have other numbers."""
    number_of = {name: number for number, name in enumerate(agents)}
    agent = np.array([number_of.get(name, -1) for name in groups], np.int64)
    is_known = agent >= 0
    number = np.zeros(len(agents))
    number[agent[is_known]] = pairs.number[is_known]

    return ContentPairs(agent[pairs.agent], pairs.difference, number)
