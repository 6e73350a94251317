"""Products that are known to be wrong, each caught by the audit that the right one passes: exit
code 1, and its name.

A mechanism that keeps its claim is blamed once in a million audits; how many canaries it takes is
printed by `python -m tests.privacy.evidence --twins`, and here none may need more than there are.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from meanstream.lab.audits import audited_run as engine_run
from meanstream.operators.agents import agents as agents_module
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.own_histogram import SampleHistogram
from meanstream.operators.agents.state import AgentRows
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.counters.registry import make_counter
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.noise import keyed
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import GaussianNoise, KeyedNoise, LaplaceNoise, NoiseIds
from meanstream.operators.records import Floats, Ints, Words
from tests.pipelines.command_line import SECRET, Ran, asks, meanstream


@dataclass(frozen=True)
class Released:
    """A run that a public audit reads: so many agents, seconds with two samples of each, and
    options."""

    agents: int
    seconds: int
    options: tuple[str, ...] = (
        "--schedule",
        "geometric:2,1.2",
        "--exceeds",
        "0.5",
        "--histogram-share",
        "0.1",
    )

    def into(self, folder: Path) -> dict[str, str]:
        """Run it; give where its store and its releases are."""
        source, found = (
            folder / "samples.csv",
            {"store": str(folder / "s.db"), "topic": str(folder / "r.jsonl")},
        )
        rng, names = np.random.default_rng(5), [f"a{i}" for i in range(self.agents)]
        with source.open("w") as file:
            file.write("agent,value,time\n")
            for second in range(self.seconds):
                values = rng.random((self.agents, 2)).round(3).tolist()
                file.writelines(
                    f"{a},{x},{second}\n{a},{y},{second}\n"
                    for a, (x, y) in zip(names, values, strict=True)
                )
        where = (
            "--source",
            str(source),
            "--store",
            found["store"],
            "--releases",
            found["topic"],
            "--quiet",
        )
        ran = meanstream(
            "run",
            "agents",
            *PROMISED,
            *self.options,
            *where,
            environment={"MEANSTREAM_SECRET": SECRET},
        )
        assert ran.code == 0, ran.err
        return found


PROMISED = ("--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--name", "twins")
STORE, TOPIC = ("audit", "store"), ("audit", "topic")
AGENTS = (
    "audit",
    "engine",
    "--through",
    "agents",
    "--canaries",
    "6000",
    "--horizon",
    "8",
    "--seed",
    "1",
)
ENGINE = (
    "audit",
    "engine",
    "--through",
    "engine",
    "--canaries",
    "400",
    "--horizon",
    "4",
    "--seed",
    "1",
    "--kills",
    "6",
)
KILLED = (*ENGINE[:-1], "12")
HISTOGRAMS = (*AGENTS, "--histogram-share", "0.5", "--exceeds", "0.5")
TOEPLITZ = (*AGENTS, "--counter", "toeplitz")
GAUSSIAN = (*AGENTS, "--noise", "gaussian")

DRAWN = (*AGENTS, "--quantiles", "0.5")
FORGETS = ("--schedule", "every:1s", "--memory", "half-life:8s")
MANY, LONG = Released(1200, 4), Released(40, 124, FORGETS)

BITS, VERSION = KeyedNoise.bits, KeyedNoise.version_of
FRESH: Any = AgentsSettings.__dict__["fresh"].func
HISTOGRAM: Any = AgentsSettings.__dict__["histogram"].func
VOTE, CAST, DERIVE = SpreadVote.cast, SampleHistogram.cast, keyed._derive
NOISED = Agents._noised
INIT, OPENED, RESTORE = Agents.__init__, engine_run.open_deployment, AgentRows.restore_chunk


def halved(noise: Any) -> Any:
    """Noise of the same kind, made for half of the sensitivity."""
    if isinstance(noise, GaussianNoise):
        return replace(noise, stddev=0.5 * noise.stddev)
    if isinstance(noise, LaplaceNoise):
        return replace(noise, scale=0.5 * noise.scale)
    return replace(noise, span=noise.span // 2)


def half_noise(self: AgentsSettings) -> Any:
    return halved(FRESH(self))


def half_noise_of_histograms(self: AgentsSettings) -> SampleHistogram | None:
    right = HISTOGRAM(self)
    return right and replace(right, noise=halved(right.noise))


def unclipped(self: FixedPoint, values: Any) -> Ints:
    return np.rint((np.asarray(values) - self.lower) / self.resolution).astype(np.int64)


def no_version(self: KeyedNoise, count: Ints, total: Ints) -> Words:
    return np.zeros(len(count), np.uint64)


def seeded_bits(self: KeyedNoise, ids: NoiseIds, draw: int = 0) -> Words:
    """A generator that every process seeds alike."""
    rng = np.random.default_rng([7, draw, int(ids.index[0]) if len(ids) else 0])
    return rng.integers(0, 2**64, (len(ids), 2), dtype=np.uint64)


def sticky_bits(self: KeyedNoise, ids: NoiseIds, draw: int = 0) -> Words:
    """The same noise for everybody, at each release."""
    return BITS(
        self, NoiseIds(np.zeros_like(ids.owner), ids.index, np.zeros_like(ids.version)), draw
    )


def unkeyed_index(self: KeyedNoise, ids: NoiseIds, draw: int = 0) -> Words:
    return BITS(
        self, NoiseIds(ids.owner, np.ones_like(ids.index), np.zeros_like(ids.version)), draw
    )


def longer(self: Agents, settings: AgentsSettings, noise: KeyedNoise, **how: Any) -> None:
    """Noise for one horizon, releases for a longer one."""
    more = replace(settings, horizon=settings.horizon + 5)
    more.__dict__.update(
        mechanism=make_counter(settings.counter, horizon=more.horizon), fresh=settings.fresh
    )
    INIT(self, more, noise, **how)


def truncated(self: Toeplitz, state: Any, rows: Ints, release: Ints, fresh: Floats) -> Floats:
    return fresh


LIVES = np.random.default_rng(19)


def noise_of_its_own(*args: Any, **named: Any) -> Any:
    """Every life of the process draws anew."""
    found = OPENED(*args, **named)
    key = LIVES.bytes(32).hex().encode()
    return replace(found, noise=KeyedNoise.of_judged_key(key, deployment="audit", purpose="agents"))


def forgetful(self: AgentRows, chunk: int, state: dict[str, np.ndarray]) -> None:
    RESTORE(self, chunk, state | {"released": np.zeros_like(state["released"])})


@dataclass(frozen=True)
class OneDraw:
    """Gives the same draw for all bins."""

    noise: Any

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        return np.asarray(self.noise.bits(ids, 60))

    def version_of(self, count: Ints, total: Ints) -> Words:
        return np.asarray(self.noise.version_of(count, total))


def shared_votes(self: SpreadVote, *given: Any) -> Ints:
    return VOTE(self, *given[:-1], OneDraw(given[-1]))


def shared_histogram(self: SampleHistogram, *given: Any) -> None:
    CAST(self, *given[:-1], OneDraw(given[-1]))


@dataclass(frozen=True)
class OtherDraws:
    """Gives some draws in place of others."""

    noise: Any
    instead: dict[int, int]

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        return np.asarray(self.noise.bits(ids, self.instead.get(draw, draw)))

    def version_of(self, count: Ints, total: Ints) -> Words:
        return count.view(np.uint64)


def shared_draws(instead: dict[int, int]) -> Any:
    """What is counted meets draws of something else of the same release."""

    def cast(self: SpreadVote | SampleHistogram, *given: Any) -> Any:
        right = VOTE if isinstance(self, SpreadVote) else CAST
        return right(self, *given[:-1], OtherDraws(given[-1], instead))

    return cast


def no_own_version(self: SpreadVote, pairs: Ints, version: Words, noise: KeyedNoise) -> Words:
    return version


def cut_draws(self: Agents, agent: Ints, index: Ints, now: Any, fresh: Floats) -> Any:
    """Draws end at 1.5 deviations, rescaled to the declared variance."""
    stddev = np.sqrt(self.settings.fresh.variance)
    return NOISED(self, agent, index, now, np.clip(fresh, -1.5 * stddev, 1.5 * stddev) / 0.8818)


def kept_low_bit(self: Agents, agent: Ints, index: Ints, now: Any, fresh: Floats) -> Any:
    """The low bit of the noised sum is that of the exact one."""
    sums = NOISED(self, agent, index, now, fresh)
    return replace(sums, total=sums.total - ((sums.total - now.total) & 1))


def repeating_ids(owner: Words, index: Ints, version: Words) -> NoiseIds:
    """The noise of every fiftieth release is one."""
    return NoiseIds(owner=owner, index=index % 50, version=np.zeros_like(version))


def key_without_deployment(secret: bytes, label: str, deployment: str, purpose: str) -> bytes:
    return DERIVE(secret, label, "", purpose)


@dataclass
class Twin:
    """What is wrong, where, and what the audit says of it; `released` is what a public audit
    reads."""

    patches: list[tuple[Any, str, Any]]
    command: tuple[str, ...] = AGENTS
    named: str = "engine"
    released: Released | None = None


VOTES, HISTOGRAMS_SHARED = (
    (SpreadVote, "cast", shared_votes),
    (SampleHistogram, "cast", shared_histogram),
)
REPEATS, COUNTED = (
    (agents_module, "NoiseIds", repeating_ids),
    ("audit", "mechanism", "agents.means_and_votes"),
)
MEANS_VOTE = (SpreadVote, "cast", shared_draws({1: 0}))
MEANS_HISTOGRAM = (SampleHistogram, "cast", shared_draws({12: 0}))
VOTES_HISTOGRAM = [
    (SpreadVote, "version", no_own_version),
    (SampleHistogram, "cast", shared_draws({12 + b: 1 + b for b in range(11)})),
]
CUT = (Agents, "_noised", cut_draws)
TWINS = {
    "averaged retries": Twin([(engine_run, "open_deployment", noise_of_its_own)], ENGINE),
    "half sensitivity": Twin([(AgentsSettings, "fresh", property(half_noise))]),
    "half sensitivity of Gaussian noise": Twin(
        [(AgentsSettings, "fresh", property(half_noise))], GAUSSIAN
    ),
    "half sensitivity of histograms": Twin(
        [(AgentsSettings, "histogram", property(half_noise_of_histograms))], HISTOGRAMS
    ),
    "half column norm": Twin([(Toeplitz, "l2_sensitivity", property(lambda self: 0.7))], TOEPLITZ),
    "unclipped input": Twin([(FixedPoint, "encode", unclipped)]),
    "seed reused for another input": Twin(
        [(KeyedNoise, "bits", seeded_bits)], named="engine.another_input"
    ),
    "shared sticky noise": Twin([(KeyedNoise, "bits", sticky_bits)], named="engine.another_agent"),
    "horizon overrun": Twin([(Agents, "__init__", longer)]),
    "version digest ignored": Twin(
        [(KeyedNoise, "version_of", no_version)], named="engine.another_input"
    ),
    "truncated Toeplitz": Twin([(Toeplitz, "_step", truncated)], TOEPLITZ),
    "truncated Toeplitz, counted": Twin(
        [(Toeplitz, "_step", truncated)],
        ("audit", "mechanism", "counter.toeplitz"),
        "counter.toeplitz.gaussian",
    ),
    "unkeyed index": Twin([(KeyedNoise, "bits", unkeyed_index)], named="engine.another_release"),
    "budget forgotten after restore": Twin([(AgentRows, "restore_chunk", forgetful)], KILLED),
    "shared bins of votes": Twin([VOTES], named="engine.another_bin_of_votes"),
    "shared bins of votes, counted": Twin([VOTES], COUNTED, "agents.means_and_votes"),
    "shared bins of histograms": Twin(
        [HISTOGRAMS_SHARED], DRAWN, "engine.another_bin_of_histograms"
    ),
    "shared bins of histograms, counted": Twin(
        [HISTOGRAMS_SHARED], ("audit", "mechanism", "agents"), "agents.means_votes_and_histograms"
    ),
    "shared bins of histograms, in a topic": Twin(
        [HISTOGRAMS_SHARED], TOPIC, "releases.histograms", MANY
    ),
    "vote bin 0 shares the draw of the mean": Twin([MEANS_VOTE]),
    "histogram bin 0 shares the draw of the mean, in a store": Twin(
        [MEANS_HISTOGRAM], STORE, "ledger", MANY
    ),
    "histogram bin 0 shares the draw of the mean, in a topic": Twin(
        [MEANS_HISTOGRAM], TOPIC, "releases", MANY
    ),
    "histogram bins share the vote's": Twin(VOTES_HISTOGRAM, DRAWN),
    "draws cut at 1.5 deviations": Twin([CUT]),
    "draws cut at 1.5 deviations, in a store": Twin([CUT], STORE, "ledger", MANY),
    "low bit of the exact sum kept": Twin([(Agents, "_noised", kept_low_bit)]),
    "noise of a memory that repeats, counted": Twin(
        [REPEATS], ("audit", "mechanism", "agents.half_life"), "agents.half_life"
    ),
    "noise of a memory that repeats, in a store": Twin([REPEATS], STORE, "ledger", LONG),
    "deployment's name left out of the key": Twin(
        [(keyed, "_derive", key_without_deployment)], named="engine.another_deployment"
    ),
}


def audited(twin: Twin | None, command: tuple[str, ...], released: Released | None = None) -> Ran:
    released = twin.released if twin else released
    with ExitStack() as patches, patch("os.fsync"):
        for place, name, wrong in twin.patches if twin else ():
            patches.enter_context(patch.object(place, name, wrong))
        if released is not None:
            read = released.into(Path(patches.enter_context(tempfile.TemporaryDirectory())))
            declared = (*PROMISED, *released.options) if command == TOPIC else ()
            command = (*command, read[command[1]], *declared)
        return asks(*command, "--json")


def canaries_of(caught: list[dict[str, Any]], twin: Twin) -> int:
    """Count the canaries until it was clear: of a fault, or of a count of all random bits, one; at
    the latest all."""
    if twin.released is not None:
        return twin.released.agents
    sure = [1 for row in caught if row["fault"] or row["method"].startswith("exact")]
    every = (
        int(twin.command[twin.command.index("--canaries") + 1])
        if "--canaries" in twin.command
        else 1
    )
    return int(min(sure + [row["runs"] for row in caught if row["runs"]], default=every))


@pytest.mark.parametrize("name", TWINS)
def test_every_twin_is_caught(name: str) -> None:
    twin = TWINS[name]
    ran = audited(twin, twin.command)
    assert ran.code == 1, ran.err
    assert twin.named in ran.json["violated"]


MORE = tuple("4000" if word == "400" else word for word in ENGINE)
"""Of so many canaries what is proved lies five standard deviations or more above what the test asks
for."""
OTHERS = [
    (*MORE, "--counter", "toeplitz"),
    (*MORE, "--counter", "pm2"),
    (*MORE, "--counter", "pm1", "--noise", "laplace"),
    (*MORE, "--histogram-share", "0.5", "--exceeds", "0.5"),
]


NAMES = [
    "agents",
    "gaussian",
    "engine",
    "toeplitz",
    "pm2",
    "laplace",
    "histograms on the engine",
    "histograms",
]


@pytest.mark.parametrize("command", [STORE, TOPIC], ids=["store", "topic"])
@pytest.mark.parametrize("released", [MANY, LONG], ids=["many", "memory"])
def test_what_the_product_has_released_is_not(command: tuple[str, ...], released: Released) -> None:
    """False alarms: 1e-6 for each row; pairs of draws are compared in all of them."""
    ran = audited(None, command, released)
    assert (ran.code, ran.json["violated"]) == (0, []), ran.json
    assert " 0 pairs of draws" not in ran.json["rows"][0]["method"]


@pytest.mark.parametrize("command", [AGENTS, GAUSSIAN, MORE, *OTHERS, HISTOGRAMS], ids=NAMES)
def test_the_product_itself_is_not(command: tuple[str, ...]) -> None:
    """False alarms: 1e-6 for each row."""
    ran = audited(None, command)
    assert (ran.code, ran.json["violated"]) == (0, [])
    assert ran.json["rows"][0]["proved"] > 0.4 * ran.json["rows"][0]["ceiling"] > 0.2
