"""What 100 million agents and a million events a second would take on Beam, from constants that are measured here.

    python benchmarks/beam/beam_at_scale.py          measure the key of the fit and one shard, then calculate
    python benchmarks/beam/beam_at_scale.py --json   the same for programs

Measured, each without a runner: the key of the fit with 16, 160 and 1,600 shards, alone and behind
groups of shards, and one shard of 62,500 agents from its samples to its answers. Calculated: cores,
bytes and seconds of a whole job, and the partitions that it reads if one gives 5,000 records a
second. The calculation leaves out the cost of reading, the network, the runner's own
copies and the slowest of many workers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import MAX_TIMESTAMP

from benchmarks.beam import agents_scale as shard_scale
from benchmarks.beam.agents_work import SETTINGS
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    ReleaseDifferences,
)
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents.agents_coders import ForShardCoder
from meanstream.pipelines.beam.agents.agents_elements import (
    FittedReleases,
    PartialReleases,
    changes_joined,
)
from meanstream.pipelines.beam.agents.answer_agents import AnswerAgents
from meanstream.pipelines.beam.agents.gather_releases import shard_groups
from meanstream.pipelines.beam.agents.release_agents import OWN, ReleaseShard
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.agents.estimates import PersonalEstimates

AGENTS = 10**8
EVENTS = 10**6
REFRESH = 60
OF_SHARD = 62_500
SAMPLES = 10
RELEASES = 40
OF_A_PARTITION = 5_000
"""Records a second that are read from one partition: an assumption, which nothing here measures."""
DIFFERENT = 8
"""Shards whose changes are made; the others repeat them."""

_CODER = ColumnsCoder(PartialReleases)


def change_of_shard(number: int, agents: int = OF_SHARD) -> PartialReleases:
    """Make what a shard tells whose agents, of four groups of means, have from 10 to 200 samples."""
    rng = np.random.default_rng(number)
    count = rng.integers(10, 201, agents)
    noise_variance = (SETTINGS.grid.span * SETTINGS.grid.resolution / count) ** 2
    releases = ReleaseColumns(
        agent=np.arange(agents),
        index=np.ones(agents, np.int64),
        count=count,
        total=count,
        mean=rng.choice([0.0, 25.0, 50.0, 75.0], agents) + rng.normal(0, 3, agents),
        noise_variance=noise_variance,
    )
    squared = rng.normal(0, 1, agents) ** 2 * (400.0 / count + noise_variance)
    pool = PooledVariance(SETTINGS.lower, SETTINGS.upper)
    pool.update(ReleaseDifferences(squared=squared, sampling=1.0 / count, noise=noise_variance))
    host = PersonalEstimates(SETTINGS, shard_scale.OPTIONS)

    return PartialReleases(
        summary=host.summarize(releases), pools={number: pool}, turns={number: 1}
    )


def key_of_fit(shards: int, made: list[PartialReleases]) -> dict[str, float]:
    """Measure what the one key does in the first window, alone and behind groups of shards."""
    changes = []
    for number in range(shards):
        one = made[number % len(made)]
        (pool,) = one.pools.values()
        changes.append(
            _CODER.encode(
                PartialReleases(summary=one.summary, pools={number: pool}, turns={number: 1})
            )
        )

    alone, population = _joined_and_fitted(changes)
    found = {
        "bytes_of_a_change": float(np.mean([len(change) for change in changes])),
        "bytes_to_the_key": float(sum(map(len, changes))),
        "bytes_of_the_population": float(population),
        **alone,
    }

    # From the square root of the shards on, a group has as many shards as there are groups.
    groups = math.isqrt(shards)
    joined = []
    seconds = []
    for group in range(groups):
        encoded, took = _timed(lambda group=group: _group(changes[group::groups]))
        joined += encoded
        seconds.append(took)

    behind, _ = _joined_and_fitted(joined)
    found |= {f"{name}_behind_groups": value for name, value in behind.items()}
    found["bytes_to_the_key_behind_groups"] = float(sum(map(len, joined)))
    found["seconds_of_a_group"] = max(seconds)

    return found


def one_shard() -> dict[str, float]:
    """Measure a shard: processor time of a sample and of an answer, bytes of its state."""
    packed = shard_scale._split(0, OF_SHARD, SAMPLES * OF_SHARD)
    _, splitting = _timed(lambda: shard_scale._split(0, OF_SHARD, SAMPLES * OF_SHARD))
    (kept, outputs), releasing = _timed(lambda: _outputs(packed))
    made = [one.value for one in outputs if not isinstance(one, TaggedOutput)]
    encode = ColumnsCoder(type(made[0])).encode
    partial, gathering = _timed(lambda: shard_scale._gathered(0, [encode(batch) for batch in made]))
    own = [one.value.value for one in outputs if isinstance(one, TaggedOutput) and one.tag == OWN]
    answer = AnswerAgents(
        SETTINGS, shard_scale.OPTIONS, shard_scale.WINDOWS, shard_scale._owner(SETTINGS)
    )
    fitted = shard_scale._fit().fit(shard_scale._joined([partial]), [shard_scale.TICK])
    lines, answering = _timed(lambda: answer._answer(own, fitted))
    samples = SAMPLES * OF_SHARD
    releases = sum(map(len, made))

    return {
        "microseconds_of_a_sample": (splitting + releasing + gathering) / samples * 1e6,
        "microseconds_of_an_answer": answering / len(lines) * 1e6,
        "bytes_of_an_answer": len(b"\n".join(lines)) / len(lines),
        "bytes_of_an_agent": sum(map(len, kept["agents"].values)) / OF_SHARD,
        "bytes_of_a_release": sum(map(len, kept["ledger"].values)) / releases,
    }


def whole_job(shard: dict[str, float], key: dict[str, float], shards: int) -> dict[str, float]:
    """Calculate the job: agents that send in a window are as many as random events reach."""
    answered = AGENTS * (1 - math.exp(-EVENTS * REFRESH / AGENTS))
    behind = "_behind_groups" if shard_groups(shards) > 1 else ""

    return {
        "answers_a_window": answered,
        "cores_for_samples": EVENTS * shard["microseconds_of_a_sample"] / 1e6,
        "cores_for_answers": answered * shard["microseconds_of_an_answer"] / 1e6 / REFRESH,
        "gigabytes_of_answers_a_window": answered * shard["bytes_of_an_answer"] / 1e9,
        "gigabytes_of_agents": AGENTS * shard["bytes_of_an_agent"] / 1e9,
        "gigabytes_of_ledger_in_the_end": AGENTS * RELEASES * shard["bytes_of_a_release"] / 1e9,
        "megabytes_to_the_key_a_window": key[f"bytes_to_the_key{behind}"] / 1e6,
        "megabytes_of_populations_a_window": shards * key["bytes_of_the_population"] / 1e6,
        "seconds_of_the_key_a_window": key[f"seconds{behind}"],
        "partitions_to_read": EVENTS / OF_A_PARTITION,
    }


def _joined_and_fitted(changes: list[bytes]) -> tuple[dict[str, float], int]:
    """Let the key take changes in, fit, and write its state."""
    whole = shard_scale._fit().empty()
    _, taking = _timed(lambda: whole.take(map(_CODER.decode, changes)))
    state, writing = _timed(lambda: _CODER.encode(whole))
    fitted, fitting = _timed(lambda: shard_scale._fit().fit(whole, [shard_scale.TICK]))
    found = {
        "seconds": taking + writing + fitting,
        "seconds_to_take_in": taking,
        "seconds_to_write": writing,
        "seconds_to_fit": fitting,
        "bytes_of_state": float(len(state)),
    }

    return found, len(ColumnsCoder(FittedReleases).encode(fitted))


def _group(changes: list[bytes]) -> list[bytes]:
    """Join the changes of a group of shards, through bytes."""
    return [_CODER.encode(one) for one in changes_joined(map(_CODER.decode, changes))]


def _outputs(packed: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Let a shard have its turn; give what it keeps and all that it lets out."""
    shard = ReleaseShard(
        SETTINGS,
        shard_scale.WINDOWS,
        SecretLocation(),
        shard_scale._owner(SETTINGS),
        final_release=True,
    )
    shard.setup()
    one, bag = shard_scale.One, shard_scale.Bag
    kept: dict[str, Any] = {"agents": one(), "changes": bag(), "head": one(), "ledger": bag()}
    given = {
        "waiting": bag(*(part.encoded for part in packed)),
        "ticks": bag(ForShardCoder().encode(shard_scale.TICK)),
        "target": one(),
        **kept,
    }
    made = shard_scale._made(SETTINGS)
    return kept, list(shard.due(key=0, time=MAX_TIMESTAMP, made=made, timer=one(), **given))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    made = work()
    return made, time.process_time() - began


def main() -> None:
    """Measure, calculate, print."""
    os.environ.setdefault("MEANSTREAM_SECRET", "6dc4c01b6b494373b7fb165cabd569fc")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    made = [change_of_shard(number) for number in range(DIFFERENT)]
    found = {f"{shards} shards": key_of_fit(shards, made) for shards in (16, 160)}
    shards = AGENTS // OF_SHARD
    found[f"{shards} shards"] = key_of_fit(shards, made)
    found["one shard"] = one_shard()
    found["calculated"] = whole_job(found["one shard"], found[f"{shards} shards"], shards)

    if options.json:
        print(json.dumps(found))
        return

    for title, rows in found.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:36} {value:16.3f}")


if __name__ == "__main__":
    main()
