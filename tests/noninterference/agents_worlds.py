"""Worlds of agents: the same stream but for one agent's values that no charged release has
shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.pipelines.beam.agents.agent_transforms import CollaboratePairwise
from meanstream.pipelines.beam.agents.pairwise_shard import PairBatch
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.streaming.crash import CrashPoint, Moment
from tests.noninterference.comparison import Seen, of_others
from tests.noninterference.product import ENVIRONMENT, Clock, Watched, same_clock_and_coins
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.streaming.support.dying import DieAt

Told = dict[tuple[str, int], tuple[int, int, list[int], list[int]]]
"""What was released, by agent and index, in the first of several worlds."""

CHANGED = "a1"
SAMPLES = 12
"""Of each agent; the release is made of the first ten."""

FORGETTING = {"memory": "half-life:1000", "schedule": "preferred:10", "horizon": None}
"""Options under which agents forget: they release after 10, 15, 20, 30, 50, 70 and 100 samples."""
MEMORIES = {"half-life": FORGETTING, "window": FORGETTING | {"memory": "window:1000"}}
"""All of them release at the same numbers of samples."""
ASKED = {"quantiles": ".5,.9", "exceeds": "1"}
"""Options under which agents are told quantiles, too, and release histograms."""
MOVED = {"samples": 98, "released": 70}
"""A stream in which an agent's last samples, which are not released, can show that its mean has
moved."""

FEW = 30
"""Agents of a small world in which everything is learned."""

UNRELEASED = {"least": -1.0, "most": 3.0, "far outside": 1e300, "tiny": 1e-300}
"""What the changed agent's unreleased samples are in each world but the first, where they are like
all others."""


def write_stream(
    path: Path,
    agents: int,
    unreleased: float | None = None,
    *,
    all_of_it: bool = False,
    prefix: str = "a",
    late: bool = False,
    samples: int = SAMPLES,
    released: int = 10,
) -> None:
    """Write samples of three classes of agents, and records that are not used, in the order of
    time."""
    rng = np.random.default_rng(3)
    who = np.tile(np.arange(agents), samples)
    value = np.array([0.2, 0.9, 1.6])[who % 3] + rng.normal(0, 0.3, len(who)).round(4)
    if unreleased is not None:
        value[(who == 1) & ((np.arange(len(who)) >= released * agents) | all_of_it)] = unreleased
    time = 1.6e9 + 0.25 * np.arange(len(who))
    given = zip(who.tolist(), value.tolist(), time.tolist(), strict=True)
    rows = [f"{prefix}{a},{v},{t},id{i}" for i, (a, v, t) in enumerate(given)]
    rows[5:5] = [
        "a0,x,1600000000.5,b1",
        "a0,nan,1600000000.5,b2",
        ",1,1600000000.5,b3",
        "a0,1,soon,b4",
        "a0,1",
        "a0,0.5,5e9,b5",
    ]
    rows.insert(10 * agents, rows[7])  # a record that comes again
    if late:  # where the file is read as it stands: of another agent, and of the one that differs
        rows += ["a0,0.5,1600000000,late0", f"a1,{value[-agents:][1]},1600000000,late1"]
    path.write_text("\n".join(["agent,value,time,id", *rows]) + "\n")


def write_covariates(path: Path, agents: int, prefixes: str = "a") -> None:
    """Write public attributes of agents: the class that moves their means, and a number."""
    rows = [
        f"{prefix}{a},{('low', 'middle', 'high')[a % 3]},{10 + a}"
        for prefix in prefixes
        for a in range(agents)
    ]
    path.write_text("\n".join(["agent,kind,size", *rows]) + "\n")


def common(**more: Any) -> dict[str, Any]:
    found = {
        "source": "private-stream.csv", "id": "id", "lower": -1, "upper": 3, "epsilon": 8, "delta": 1e-6,
        "schedule": "geometric:10,100", "horizon": 3, "final_release": False, "store": "state.db", **more,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def outputs(watched: Watched) -> dict[str, Any]:
    roles = ("releases", "population", "dead_letters", "notices")
    files = {role: f"{role}.jsonl" for role in roles}
    addresses = {
        "metrics": f"127.0.0.1:{watched.ports[0]}",
        "page": f"127.0.0.1:{watched.ports[1]}",
    }
    return {"sink": "estimates.jsonl", **files, **addresses}


def at_once(
    folder: Path,
    agents: int,
    ports: tuple[int, ...],
    *,
    options: dict[str, Any] | None = None,
    **stream: Any,
) -> Seen:
    """Run the engine with all outputs, once: what is left of `hosted` where worlds or agents are
    many."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports, asked=("a0",))
        write_stream(folder / "private-stream.csv", agents, **stream)
        watched.run(
            "once", "run", "agents", json=True, **common(**outputs(watched), **(options or {}))
        )
        return of_others(watched.seen(), CHANGED)


def querying(folder: Path, agents: int, ports: tuple[int, ...], **stream: Any) -> Seen:
    """Run agents that query each other on the engine, twice; each answers each other once, and
    what it has later is shown to nobody."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports, asked=("a0",))
        write_stream(folder / "private-stream.csv", agents, **stream)
        shown = outputs(watched) | dict.fromkeys(("releases", "population", "notices"))
        options = common(
            **shown,
            schedule="round_robin",
            horizon=1,
            stddev=0.3,
            final_release=None,
            refresh=f"{max(agents, 4)}s",
            members=True,
        )
        watched.run("run", "run", "agents", json=True, **options)
        watched.run("again", "run", "agents", log_format="json", **options)
        return of_others(watched.seen(), CHANGED)


def to_parquet(folder: Path, agents: int, **stream: Any) -> Seen:
    """Run the engine, twice, with folders of Parquet files for all events."""
    roles = ("releases", "population", "dead_letters", "notices")
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock)
        write_stream(folder / "private-stream.csv", agents, **stream)
        files = {"sink": "estimates.parquet", **{role: f"{role}.parquet" for role in roles}}
        for name in ("run", "again"):
            watched.run(name, "run", "agents", json=True, **common(**files))
        return of_others(watched.seen(), CHANGED)


def hosted(
    folder: Path, agents: int, ports: tuple[int, ...], *, read: bool = True, **stream: Any
) -> Seen:
    """Run the engine with all outputs: killed, continued, started again; then all that reads its
    store or files."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports, asked=("a0", CHANGED, "nobody"))
        write_stream(folder / "private-stream.csv", agents, late=True, **stream)
        batch, refresh = max(6 * agents, 20), f"{max(agents, 4)}s"
        options = common(
            **outputs(watched), refresh=refresh, lateness="0s", batch_size=batch, sort=False
        )
        watched.run("killed", "run", "agents", die=killed_once(), log_format="json", **options)
        watched.run(
            "continued", "run", "agents", json=True, private_figures="continued.json", **options
        )
        watched.run("again", "run", "agents", quiet=True, **options)
        watched.run(
            "replay", "dlq", "replay", "--from", "dead_letters.jsonl", "--reason", "late", **options
        )
        watched.run("with another epsilon", "run", "agents", **{**options, "epsilon": 2})
        watched.run("dry", "run", "agents", dry_run=True, **{**options, "sort": True})
        if read:
            read_all(watched)
        return of_others(watched.seen(), CHANGED)


def killed_once() -> DieAt:
    """Die before the first delivery is durable."""
    return DieAt(CrashPoint.FLUSH_SINKS, Moment.BEFORE, 1)


def private_side(folder: Path, agents: int, **stream: Any) -> Seen:
    """Run the private side of an organization alone: what leaves it."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock)
        write_stream(folder / "private-stream.csv", agents, **stream)
        files = {role: f"{role}.jsonl" for role in ("releases", "dead_letters", "notices")}
        watched.run("side", "run", "agent-side", json=True, **common(**files))
        return of_others(watched.seen(), CHANGED)


def federated(
    folder: Path,
    agents: int,
    ports: tuple[int, ...],
    *,
    released: dict[str, Any] | None = None,
    told: dict[str, Any] | None = None,
    **stream: Any,
) -> Seen:
    """Run two organizations: each its private side, and its answers from the releases of both,
    which are watched.

    There may be more options for what is released, and for what is told.
    """
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports, asked=("a0", CHANGED, "b0"))
        for side, more in (("a", stream), ("b", {})):
            write_stream(folder / f"private-{side}.csv", agents, prefix=side, **more)
            roles = {
                role: f"{side}-{role}.jsonl" for role in ("releases", "dead_letters", "notices")
            }
            own = common(**roles, **(released or {})) | {
                "source": f"private-{side}.csv",
                "store": f"{side}.db",
            }
            watched.run(f"side of {side}", "run", "agent-side", json=True, **own)
        both = [(folder / f"{side}-releases.jsonl").read_bytes() for side in "ab"]
        (folder / "both.jsonl").write_bytes(b"".join(both))
        shown = {
            name: f"127.0.0.1:{port}"
            for name, port in zip(("metrics", "page"), ports, strict=False)
        }
        for side, sink, more in (("a", "estimates.jsonl", {"log_format": "json"}), ("b", "-", {})):
            asked = {
                "releases": "both.jsonl",
                "store": f"{side}.db",
                "sink": sink,
                "until_end": True,
                **more,
            }
            asked |= told or {}
            asked["population"] = f"{side}-population.jsonl"
            watched.run(f"dry answers of {side}", "run", "collaborate", dry_run=True, **asked)
            watched.run(f"answers of {side}", "run", "collaborate", **asked, **shown)
        watched.run(
            "counted",
            "run",
            "collaborate",
            json=True,
            quiet=True,
            **asked | {"sink": "again.jsonl"},
        )
        return of_others(watched.seen(), CHANGED)


def on_beam(
    folder: Path, agents: int, *, options: dict[str, Any] | None = None, **stream: Any
) -> Seen:
    """Run the same on Beam, twice: what is written, counted, displayed, and the graph of the
    job."""
    watched = Watched(folder, Clock())
    write_stream(folder / "private-stream.csv", agents, **stream)
    roles = {"sink": "estimates", **{name: name for name in ("releases", "population", "notices")}}
    with watching_beam(watched):
        for run in ("first", "again"):
            files = {role: f"{name}.{run}.jsonl" for role, name in roles.items()}
            watched.run(
                run,
                "run",
                "agents",
                json=True,
                **common(**files, runner="FnApiRunner", name="worlds", **(options or {})),
            )
    return of_others(watched.seen(), CHANGED)


def asking_each_other(agents: int, unreleased: float | None = None) -> Seen:
    """Run the paper's agents, who ask each other, on Beam: each answers everybody once, and what it has later is shown
    to nobody."""
    names = tuple(f"a{agent}" for agent in range(agents))
    steps = 3 * agents
    values = np.random.default_rng(1).normal(1, 1, (steps, agents))
    if unreleased is not None:
        values[2 * agents :, 1] = unreleased
    stream = [
        (n, float(values[s, i]), 2.0 * s + i / agents)
        for s in range(steps)
        for i, n in enumerate(names)
    ]
    release = AgentsSettings(
        name="world",
        lower=-2,
        upper=6,
        epsilon=1,
        delta=1e-6,
        horizon=1,
        counter="pm1",
        spread_share=0.0,
    )
    settings = PairwiseStreamSettings(release=release)
    watched, (keep, told) = Watched(Path.cwd(), Clock()), collector()

    def build(pipeline: Any) -> Any:
        answers = (
            pipeline
            | beam.Create(stream, reshuffle=False)
            | CollaboratePairwise(settings, refresh=10.0)
        )
        _ = answers.releases | "Told" >> keep
        return answers.estimates

    with watching_beam(watched), patch.dict("os.environ", ENVIRONMENT):
        estimates, counters = run_pipeline(build)
    watched.keep(
        "file estimates.asked",
        b"".join(line + b"\n" for batch in estimates for line in batch.lines),
    )
    for batch in told:
        watched.keep("told", ColumnsCoder(PairBatch).encode(batch))
    watched.keep("counters", repr(sorted(counters.items())).encode())
    return of_others(watched.seen(), CHANGED)


@contextmanager
def watching_beam(watched: Watched) -> Iterator[None]:
    """Keep what a runner is told of a pipeline, and what it counts."""
    run = FnApiRunner.run_pipeline

    def watch(self: FnApiRunner, pipeline: Any, options: Any) -> Any:
        graph = pipeline.to_runner_api()
        for name, step in sorted(graph.components.transforms.items()):
            shown = [data.SerializeToString(deterministic=True) for data in step.display_data]
            watched.keep("display data", name.encode() + b" ".join(shown))
            watched.keep(
                "job graph",
                f"{name} {step.unique_name} {step.spec.urn} {sorted(step.inputs)}".encode(),
            )
        result = run(self, pipeline, options)
        result.wait_until_finish()
        for kind, counted in sorted(result.metrics().query().items()):
            lines = sorted(
                f"{kind} {c.key.step} {c.key.metric.namespace} {c.key.metric.name} {c.committed}"
                for c in counted
            )
            watched.keep(
                "counters", "\n".join(line for line in lines if "seconds" not in line).encode()
            )
        return result

    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(FnApiRunner, "run_pipeline", watch)
        yield


def read_all(watched: Watched) -> None:
    """All that anybody is given of a store, and of the file of dead letters."""
    watched.run("report", "report", "report.html", store="state.db")
    watched.run("ledger backup", "ledger", "backup", "--store", "state.db", "--to", "copy.db")
    export = ("ledger", "export", "--store", "state.db", "--to", "ledger.jsonl")
    watched.run("ledger export", *export)
    for store in ("state.db", "copy.db"):
        watched.run(f"budget of {store}", "budget", "--store", store, "--json")
        watched.run(f"ledger verify of {store}", "ledger", "verify", "--store", store)
    write_signing_key(watched.folder / "signing.key")
    sign = (
        "ledger",
        "sign",
        "--store",
        "state.db",
        "--signing-key",
        "signing.key",
        "--to",
        "head.json",
    )
    watched.run("ledger sign", *sign, "--json")
    watched.run("get", "get", "a0", "--store", "state.db", "--json")
    for decided in (("--difference", "a0", CHANGED), ("--top", "1")):  # public, of all releases
        words = ("get", "--store", "state.db", *decided)
        watched.run(f"get {decided[0]}", *words)
        watched.run(f"get {decided[0]} as JSON", *words, "--json")
    declared = {
        name: value for name, value in common().items() if name not in ("source", "id", "store")
    }
    watched.run("audit of the store", "audit", "store", "state.db", "--json")
    watched.run("audit of the releases", "audit", "topic", "releases.jsonl", json=True, **declared)
    watched.run(
        "dlq list", "dlq", "list", "--dead-letters", "dead_letters.jsonl", "--store", "state.db"
    )
    watched.run("dlq show", "dlq", "show", "--dead-letters", "dead_letters.jsonl", "--json")


def write_signing_key(path: Path) -> None:
    """One key for all worlds: which one it is depends on no sample."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"1")
    path.write_bytes(
        key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    )
    path.chmod(0o600)


@contextmanager
def releases_as(
    told: Told,
) -> Iterator[None]:
    """Force all that is noised to be that of the first world: the first fills `told`, the others
    repeat it.

    The keyed digest of the input, which the ledger's chain holds, is a coin to whoever has no key:
    it falls alike.
    """
    release = Agents._release
    cast = SpreadVote.cast
    votes_cast: Any = told  # of a host they come after the release that they leave with

    def forced_vote(self: SpreadVote, pairs: Any, since: Any, ids: Any, noise: Any) -> Any:
        made = cast(self, pairs, since, ids, noise)
        for i, owner in enumerate(ids.owner):
            key = ("vote", owner.tobytes(), int(ids.index[i]))
            made[i] = votes_cast.setdefault(key, made[i].copy())
        return made

    def forced(self: Agents, agent: Any, *sums: Any) -> None:
        release(self, agent, *sums)
        piece = sums[-1].pieces[-1]
        for i, (a, index) in enumerate(zip(agent.tolist(), piece.index.tolist(), strict=True)):
            counts = piece.votes[i].tolist(), piece.histogram[i].tolist()
            made = int(piece.total[i]), int(piece.version[i]), *counts
            noised, version, votes, histogram = told.setdefault((self.names[a], index), made)
            piece.total[i] = self.columns["released_total"][a] = noised
            piece.votes[i] = self.columns["vote_noised"][a] = votes
            if histogram:
                piece.histogram[i] = self.columns["histogram_noised"][a] = histogram
            piece.version[i] = version

    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(Agents, "_release", forced)
        changes.setattr(SpreadVote, "cast", forced_vote)
        yield
