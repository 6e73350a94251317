"""The engine of agents that query each other.

What each receives is charged before its estimate leaves.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import AgentEstimates, Floats, Ints
from meanstream.operators.rings import ring_module
from meanstream.streaming.agents.agents_delivery import (
    OWN_ANSWERS,
    DueEstimates,
    EstimatedState,
    MadeEstimates,
    committed_event_time,
)
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.forget_agent import (
    ForgottenAgent,
    drop_agent_samples,
    drop_name,
    require_stored_name,
)
from meanstream.streaming.agents.pairwise.pairs_picture import pairs_picture
from meanstream.streaming.agents.pairwise.pairwise_deployment import (
    read_partners_file,
    saved_pairwise_settings,
)
from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.forgotten import add_forgotten_agent
from meanstream.streaming.engine.keepers import Commit, EndKeeper, IntakeKeeper, Keeper
from meanstream.streaming.engine.own_events import Key
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import PairRelease, PersonalEstimate, Population, release_ids
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_PAIRS


class DuePairwiseEstimates(DueEstimates):
    """Knows when the estimates of agents that query each other are due, and makes them.

    **Privacy.** An estimate is a function of the agent's own samples and of what it received; so is
    its class. There is no population: what one agent received is for no other.
    """

    def __init__(
        self,
        pairs: Any,
        options: EngineOptions,
        state: EstimatedState,
        partners_file: Path | None = None,
    ) -> None:
        super().__init__(pairs.release, options, state)
        self._options = options
        self._answers = {"level": options.level, "refresh": options.refresh}

        # Whoever answers from the store needs the graph, of which the store has a digest.
        if partners_file is not None:
            self._answers["partners"] = str(partners_file.resolve())

    def _refreshed(self, which: Ints | None) -> MadeEstimates:
        agents: Any = self._agents
        time = self._event_time.reached
        chosen = agents.seen_since(-np.inf) if which is None else which
        answer, alone = agents.estimate(chosen, level=self._options.level)
        interval = _ends(answer)

        answered = AnsweredAgents(
            time=time,
            names=tuple(agents.names[number] for number in chosen.tolist()),
            agent=chosen,
            count=agents.counts()[chosen],
            value=answer.value,
            interval=interval,
            local=alone.value,
            local_interval=_ends(alone),
            effective_class_size=answer.effective_class_size,
            class_size=answer.class_size,
        )
        lines = pairwise_estimate_lines(
            agents, chosen, (answer, alone), time, members=self._options.members
        )
        width = float(np.median(interval[:, 1] - interval[:, 0]) / 2) if len(chosen) else None

        return MadeEstimates(lines, EventLines(Population, []), width, None, answered)


def pairwise_estimate_lines(
    agents: Any,
    chosen: Ints,
    answers: tuple[AgentEstimates, AgentEstimates],
    event_time: float,
    *,
    members: bool,
) -> EventLines:
    """Write estimates of some agents, and what each has alone; each line is for its agent only."""
    answer, alone = answers
    columns: dict[str, Any] = {
        "agent": [agents.names[number] for number in chosen.tolist()],
        "n": agents.counts()[chosen].tolist(),
        "value": answer.value.tolist(),
        "interval": _ends(answer).tolist(),
        "local": alone.value.tolist(),
        "local_interval": _ends(alone).tolist(),
        "effective_class_size": answer.effective_class_size.tolist(),
        "class_size": answer.class_size.tolist(),
        "component": answer.component.tolist(),
        "membership": answer.membership.tolist(),
    }

    if members:
        columns["members"] = [agents.members(number) for number in chosen.tolist()]

    release = agents.settings.release
    same = {
        "time": iso_times(np.array([event_time]))[0],
        "level": answer.level,
        "method": "pairwise",
        "epsilon": float(release.epsilon),
        "delta": float(release.delta),
        "mode": release.mode,
    }

    return encode_columns_as_lines(PersonalEstimate, columns, same)


def _ends(answer: AgentEstimates) -> Floats:
    return np.stack([answer.lower, answer.upper], axis=1)


KINDS = ("pairwise agents", "pairs")
"""Kinds of the chunks of what agents know."""


def _knows_estimates(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    """Compare with the last commit.

    Estimates are written after it, and written again of it after a crash.
    """
    # A place of answers may be ahead of the store only by what the store knows.
    numbers = [np.zeros(0, np.int64)]
    counts = [np.zeros(0, np.int64)]
    for _, columns in store.chunks(KINDS[0]):
        numbers.append(columns["agent"] - 1)
        counts.append(columns["count"])

    agent = np.concatenate(numbers)
    count = np.concatenate(counts)
    names = store.agents()
    counts_by_name = {
        names[a]: n for a, n in zip(agent.tolist(), count.tolist(), strict=True) if a >= 0
    }
    time = committed_event_time(store)

    return all(
        answered_at <= time and n <= counts_by_name.get(agent, 0) for answered_at, agent, n in keys
    )


PAIRWISE_ANSWERS = tuple(
    replace(one, knows=_knows_estimates) for one in OWN_ANSWERS if one.role == "estimates"
)
"""Of the sinks of agents that query each other."""


class PairwiseEngine(Engine):
    """Reads samples, lets each agent query one other at each of them, and lets estimates out.

    As `Engine`, it commits a turn before anything of it leaves, and continues from the last commit.
    A release goes from one agent to another inside the process: the ledger keeps it, and no sink
    has it.

    Parameters
    ----------
    pairs : PairwiseStreamSettings
        Of `meanstream.lab.papers.colme`.
    options : EngineOptions
        `max_agents` is the capacity of the federation.
    partners_file : Path, optional
        Where the graph of partners comes from, so that whoever answers from the store finds it.
    **more
        As for `Engine`.

    Notes
    -----
    **Privacy.** What leaves is the estimate of an agent, for that agent only: a function of its own
    samples and of what it received. Who queried whom, and how many releases there were, depends on
    values under restricted_round_robin: both stay in the store and in private figures.
    """

    charged = PairRelease
    own_answers = PAIRWISE_ANSWERS

    def __init__(self, *, pairs: Any, partners_file: Path | None = None, **more: Any) -> None:
        # The engine of agents, with pairs in the place of its releases.
        self._pairs = pairs
        self._partners_file = partners_file
        super().__init__(settings=pairs.release, **more)
        self.stats.look_ahead = self._event_time.first_release = None

        # Who queried whom depends on values under the other schedule, and is on no page.
        if pairs.schedule == "round_robin":
            self.stats.pairs_picture = partial(pairs_picture, self.agents)

    def _make_agents(self, settings: AgentsSettings, noise: KeyedNoise) -> Any:  # noqa: ARG002
        kind = ring_module("lab.papers.colme.pairwise_stream").PairwiseStream
        self.stream: Any = kind(self._pairs, noise, capacity=self._options.max_agents)
        return self.stream

    def _make_keepers(self) -> list[Keeper[list[Any]]]:
        return [
            IntakeKeeper(self._intake, self.stats),
            EndKeeper(),
            PairsKeeper(self.stream, self._intake, self.stats, self._store.path),
            self._letters,
            self._unused,
            self._event_time,
        ]

    def _make_due(self, state: EstimatedState) -> DueEstimates:
        return DuePairwiseEstimates(self._pairs, self._options, state, self._partners_file)

    def _update(self, active: tuple[int, ...], rejects: Rejects, *, ended: bool) -> list[Any]:  # noqa: ARG002
        due = self._intake.due(active, ended=ended and self._options.drain)
        made = []

        # The watermark orders samples; each may make its agent query others.
        if len(due.time):
            made = [self.stream.take(due.agent, due.value, due.time, self._intake.names)]
            self._event_time.pass_to(float(due.time[-1]))

        self._event_time.show(released=True)
        return made

    def _charges(self, taken: list[Any]) -> LedgerRows:
        """Write what agents told their readers, as rows of the ledger."""
        release = self._pairs.release
        released = self._pairs.variance == "released"
        return pair_rows(taken, self._intake.names, release, released=released)


class PairsKeeper(Keeper[list[Any]]):
    """Keeps what the agents of a `PairwiseStream` know, and counts what they told each other."""

    def __init__(self, stream: Any, intake: Intake, stats: EngineStats, place: Path) -> None:
        self._stream = stream
        self._intake = intake
        self._stats = stats
        self._place = place

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Give the agents the state of the last commit."""
        restore_pairs(store, self._stream, self._intake.names)

    def save(self, store: Store) -> None:
        """Write what changed."""
        for kind, chunk, columns in self._stream.changes():
            store.put_chunk(kind, chunk, columns)

    def post(self, commit: Commit[list[Any]]) -> Iterable[EventLines]:
        """Refuse a ledger that knows other releases: pairs and ledger are committed together."""
        if commit.refused:
            raise StoreError(
                f"store must have the pairs of its ledger, got {str(self._place)!r}: it was changed"
            )

        return ()

    def count(self, commit: Commit[list[Any]]) -> None:
        """Count messages, and what readers could learn, which is public."""
        self._stats.messages += len(commit.rows)
        self._stats.samples_per_partner = self._stream.samples_per_partner()


def restore_pairs(store: Store, stream: Any, names: list[str]) -> None:
    """Fill a `PairwiseStream` with what the last commit saved."""
    for kind in KINDS:
        for chunk, columns in store.chunks(kind):
            stream.restore(kind, chunk, columns)

    stream.restored(names)


def pair_rows(batches: list[Any], names: list[str], release: Any, *, released: bool) -> LedgerRows:
    """Write what agents released to their readers, as ledger rows.

    With variances, where these are released.
    """
    # One column for each field, over all batches.
    columns: dict[str, Any] = {
        name: np.concatenate([np.zeros(0, kind), *[getattr(batch, name) for batch in batches]])
        for name, kind in (
            *dict.fromkeys(
                ("agent", "reader", "index", "charge", "count", "total"), np.int64
            ).items(),
            *dict.fromkeys(("mean", "noise_variance", "variance", "time"), np.float64).items(),
            ("version", np.uint64),
        )
    }
    agent, reader, index = (columns[name].tolist() for name in ("agent", "reader", "index"))
    fields: dict[str, Any] = {
        "release_id": pair_release_ids(names, agent, reader, index, deployment=release.name),
        "agent": [names[a] for a in agent],
        "reader": [names[r] for r in reader],
        "index": index,
        "time": iso_times(columns["time"]),
        "n": columns["count"].tolist(),
        "total": columns["total"].tolist(),
        "mean": columns["mean"].tolist(),
        "noise_variance": columns["noise_variance"].tolist(),
    }

    # A variance is only written where it was released, and where it is known.
    if released:
        finite = np.isfinite(columns["variance"])
        fields["variance"] = [
            v if ok else None for v, ok in zip(columns["variance"].tolist(), finite, strict=True)
        ]

    privacy = {
        "epsilon": float(release.epsilon),
        "delta": float(release.delta),
        "mode": release.mode,
    }

    return LedgerRows(
        agent=agent,
        release_index=columns["charge"].tolist(),
        input_version=columns["version"].view(np.int64).tolist(),
        time=columns["time"].tolist(),
        output=list(encode_columns_as_lines(PairRelease, fields, privacy).lines),
    )


def pair_release_ids(
    names: list[str],
    agent: list[int],
    reader: list[int],
    index: list[int],
    *,
    deployment: str | None,
) -> list[str]:
    """Give the ids of releases.

    Deployment, who was queried, who queried, which release of the one to the other it is.

    Examples
    --------
    >>> pair_release_ids(["tail 7", "N14228"], [0], [1], [3], deployment="pairs")
    ['pairs/tail%207:N14228:3']
    """
    # The id names both: who told, and who was told.
    first = [
        release_id.removesuffix(":0")
        for release_id in release_ids(names, agent, [0] * len(agent), deployment=deployment)
    ]

    return [
        f"{release_id}:{other}"
        for release_id, other in zip(first, release_ids(names, reader, index), strict=True)
    ]


def pairs_at_rest(store: Store, saved: Mapping[str, Any]) -> Any:
    """Private: the `PairwiseStream` of a store, with noise that is never asked for.

    Raises
    ------
    StoreError
        If the store has a graph of partners that the file of the last run does not hold any more.
    """
    settings = saved_pairwise_settings(saved, _partners(store, saved))
    noise = KeyedNoise(secrets.token_bytes(32), deployment="copy", purpose="none")
    names = store.agents()

    kind = ring_module("lab.papers.colme.pairwise_stream").PairwiseStream
    stream = kind(settings, noise, capacity=max(len(names), 2))
    restore_pairs(store, stream, names)

    return stream


def _partners(store: Store, saved: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """Public: read who may query whom from the file of the last run; the store has its digest."""
    if saved["partners"] is None:
        return None

    place = (store.state("delivered") or {}).get("answers", {}).get("partners")
    way_out = "run once more with --partners, which may be where the file is now"
    if place is None:
        raise StoreError(f"store must know its file of partners, got none: {way_out}")

    try:
        partners = read_partners_file(Path(place))
    except ValueError as error:
        raise StoreError(f"{error}: {way_out}") from None

    if saved_pairwise_settings(saved, partners).plain()["partners"] != saved["partners"]:
        raise StoreError(
            f"partners must be those that the store began with, got others in {place!r}: {way_out}"
        )

    return partners


def forget_paired_agent(store: Store, name: str) -> ForgottenAgent:
    """Erase all that is private of an agent from a pairwise store at rest.

    Its further samples are rejected.

    Raises
    ------
    StoreError
        If the store is of another kind or does not have the agent, or someone reads the store
        meanwhile.

    Notes
    -----
    **Privacy.** Its sums, its samples that wait, what it makes of what it received, and the noise
    of its pairs are overwritten in the file. Its readers keep what they received, in their
    estimates too, and the ledger keeps every release to it and of it. An agent without any release
    leaves no name.
    """
    saved, number, releases = require_stored_name(store, OF_PAIRS, "agent", name)
    with store.transaction():
        stream = pairs_at_rest(store, saved)
        stream.forget(number)
        for kind, chunk, columns in stream.changes():
            store.put_chunk(kind, chunk, columns)

        waiting = drop_agent_samples(store, number)

        # The ledger names it as a reader, too.
        kept = releases > 0 or stream.has_received(number)
        if not kept:
            drop_name(store, number)

        add_forgotten_agent(store, number)

    store.erase_deleted()
    return ForgottenAgent(name, releases, waiting, name_kept=kept)
