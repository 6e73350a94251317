"""Public: batches of releases by the shards of their agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Ints
from meanstream.pipelines.beam.agents.agents_coders import AgentReleasesCoder
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases, Packed, numbered_anew
from meanstream.pipelines.beam.element_types.beam_samples import RememberedWords


def releases_to_shards(
    batch: AgentReleases, words: RememberedWords, coder: AgentReleasesCoder, shards: int
) -> Iterator[tuple[int, Packed]]:
    """Split a batch by the shards of its agents."""
    of_name = releases_shards(batch, words, shards)
    if len(of_name) and np.all(of_name == of_name[0]):  # as a shard has made them
        yield int(of_name[0]), Packed(coder.encode(batch))
        return

    of_release = of_name[batch.releases.agent]
    for shard in np.unique(of_release).tolist():
        yield shard, Packed(coder.encode(releases_taken(batch, of_release == shard)))


def releases_shards(batch: AgentReleases, words: RememberedWords, shards: int) -> Ints:
    """Give the shard of each name."""
    return (batch.hashes(words.of)[:, 1] % np.uint64(shards)).astype(np.int64)


def releases_taken(batch: AgentReleases, which: np.ndarray, **changes: Any) -> AgentReleases:
    """Select releases, and the names that they have."""
    releases = batch.releases.take(which)
    used, agent = numbered_anew(releases.agent, len(batch.names))
    return replace(
        batch,
        names=batch.names.take(pa.array(used)),
        words=batch.words[used] if len(batch.words) else batch.words,
        releases=replace(releases, agent=agent),
        time=batch.time[which],
        **changes,
    )
