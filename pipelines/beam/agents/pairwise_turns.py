"""A small federation on Beam whose agents ask each other, as in the paper.

One shard, releases addressed to readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.noise.keyed import NoiseSource
from meanstream.operators.records import Bools, Ints
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import EstimateBatch, Tick
from meanstream.pipelines.beam.agents.agents_from_files import WINDOWS, ReadAgents
from meanstream.pipelines.beam.agents.agents_parts import (
    SplitSamples,
    agents_part_outputs,
    agents_part_split,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, TickShards, TicksOf
from meanstream.pipelines.beam.agents.charges import ReleaseLedger
from meanstream.pipelines.beam.agents.pairwise_shard import (
    FederationShard,
    PairBatch,
    PairTurn,
    pairwise_release_columns,
    pairwise_release_ids,
)
from meanstream.pipelines.beam.agents.release_agents import REFUSALS
from meanstream.pipelines.beam.agents.split_agents import SplitByShard
from meanstream.pipelines.beam.agents.waiting_samples import (
    ShardTurns,
    take_waiting_samples,
    waiting_up_to,
)
from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.input.beam_intake import SampleIntake
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import ForGood, typed_outputs, with_window_time
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_seconds,
    require_timers,
    shown_settings,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.times import iso_times, time_as_datetime
from meanstream.streaming.events.wire import PersonalEstimate, Refusal
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.store.secret_source import noise_from_secret

ESTIMATES = "estimates"


class PairwiseCollaborated(NamedTuple):
    """What `CollaboratePairwise` gives.

    Attributes
    ----------
    estimates : PCollection of EstimateBatch
        Private: each line is addressed to its agent and to no one else.
    releases : PCollection of PairBatch
        Each for its reader and for no one else.
    refusals : PCollection of Refusal
        Public: releases that were refused.
    rejected : PCollection of DeadLetter
        Public: elements that were no samples, with the reason and nothing of what they said.
    """

    estimates: beam.PCollection
    releases: beam.PCollection
    refusals: beam.PCollection
    rejected: beam.PCollection


class CollaboratePairwise(beam.PTransform):  # type: ignore[misc]
    """Samples to every agent's estimate as in the paper.

    At each sample its agent queries one other and tests its mean.

    For reproduction and for small federations: the state of all ordered pairs is one element, of at
    most 256 MiB. Larger ones take `CollaborateAgents`, or name partners. As in
    `run agents --schedule round_robin`, no agent waits for another, and agents may come late:
    `meanstream.lab.papers.colme.pairwise_stream`.

    Input as for `ReleaseMeans`; output: `PairwiseCollaborated`. Samples of agents beyond
    `max_agents` are counted and left out.

    **Privacy.** Neighboring streams differ in the value of one sample; who produced samples and
    when is public. All releases of an agent to one reader are (epsilon, delta)-differentially
    private, and are charged to the ordered pair before they leave. They are for that reader:
    readers who pool them average the noise away. A reader that was refused a release learns alone
    from then on.

    Parameters
    ----------
    settings : PairwiseStreamSettings
        With the deployment's name in `release`.
    options : EngineOptions, optional
        Of it `allowed_lateness`, `max_future`, `max_agents`, `members` and `level` are used.
    secret : SecretLocation, optional
        Where workers find the secret; by default in their environment.
    refresh : float, optional
        Seconds of event time: samples are taken in at each multiple. By default once, at the end of
        a bounded input.
    fields : SampleFields, optional
        As for `ReleaseMeans`.

    Examples
    --------
    >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    >>> from meanstream.streaming.store.secret_source import make_secret
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> release = AgentsSettings(
    ...     lower=0, upper=10, epsilon=1, delta=1e-6, counter="pm1", spread_share=0, name="couple")
    >>> settings = PairwiseStreamSettings(release=release, stddev=1.0)
    >>> samples = [(who, 5.0, float(time)) for time in range(30) for who in ("ann", "bob")]
    >>> secret = SecretLocation(file=getfixture("tmp_path") / "secret")
    >>> make_secret(secret.file)
    >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    ...     given = pipeline | beam.Create(samples, reshuffle=False)
    ...     sent = given | CollaboratePairwise(settings, secret=secret)
    ...     _ = sent.releases | beam.Map(
    ...         lambda batch: print(batch.reader[0], "received", len(batch) // 2, "releases"))
    ann received 30 releases
    """

    def __init__(
        self,
        settings: PairwiseStreamSettings,
        options: EngineOptions | None = None,
        *,
        secret: SecretLocation | None = None,
        refresh: float | str | None = None,
        fields: SampleFields | None = None,
    ) -> None:
        super().__init__()
        require_beam_secret_named(as_kind("settings", settings, PairwiseStreamSettings))

        # Options are checked where the pipeline is built.
        told = as_kind("options", options or EngineOptions(), EngineOptions)
        refresh = None if refresh is None else as_seconds("refresh", refresh)
        self._settings = settings
        self._secret = secret or SecretLocation()

        self._windows = AgentWindows(refresh=refresh, lateness=told.allowed_lateness)
        self._options = told
        self._capacity = pairwise_capacity(settings, told.max_agents)
        given = as_kind("fields", fields or SampleFields(), SampleFields)
        self._intake = SampleIntake.of(
            given, SampleFields(), secret=secret, max_future=told.max_future
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return shown_settings(
            self._settings.release, **_choices(self._settings), refresh=self._windows.refresh
        )

    def expand(self, pcoll: beam.PCollection) -> PairwiseCollaborated:
        """Bring all samples to one key, wait for the end of a window, step."""
        require_timers(pcoll.pipeline, bounded=pcoll.is_bounded)
        intake = self._intake.taking(pcoll, owner="agent")

        # An unbounded input needs windows, or nothing would ever end.
        ends = pcoll.is_bounded or self._windows.refresh is not None
        require(ends, "refresh", "be given for an unbounded input", self._windows.refresh)
        split = SplitByShard(self._settings.release.grid, self._windows, 1, intake)
        given = agents_part_split(pcoll | "Split" >> agents_part_outputs(split))
        step = StepFederation(
            self._settings, self._windows, self._secret, self._options, self._capacity
        )

        return step_pairs(given, step, self._windows)


def step_pairs(
    given: SplitSamples, step: StepFederation, windows: AgentWindows
) -> PairwiseCollaborated:
    """Private to addressed.

    Samples of one key, with notes of their windows, to what the agents get.
    """
    # All pairs meet in one key: each agent may query any other.
    ticks = given.notes | "Tick" >> TickShards(windows, 1, step.owner) | "Ticks" >> TicksOf(1)
    made = (
        (given.samples | "For good" >> ForGood(), ticks)
        | "Together" >> beam.Flatten()
        | "Step" >> beam.ParDo(step).with_outputs(ESTIMATES, REFUSALS, main="releases")
    )
    types = {ESTIMATES: EstimateBatch, "releases": PairBatch, REFUSALS: Refusal}
    estimates, releases, refusals = typed_outputs(made, types)

    return PairwiseCollaborated(estimates, releases, refusals, given.rejected)


class StepFederation(ShardTurns):
    """Private to addressed: a federation, its samples and its ledger, as state of one key.

    **Privacy.** Noise is a function of (secret, ordered pair, index, input): what is executed again
    releases the same again. A release is charged in the state before it leaves.
    """

    VALUES = ("federation", "charges")
    BAGS = ("ledger",)
    TIMER = "due"

    def __init__(
        self,
        settings: PairwiseStreamSettings,
        windows: AgentWindows,
        secret: SecretLocation,
        options: EngineOptions,
        capacity: int,
    ) -> None:
        plain = {"state": "pairwise", **settings.plain(), "refresh": windows.refresh}

        # State belongs to these settings and this secret, and refuses others.
        owner = StateOwner(settings=plain, secret=secret)
        super().__init__(owner, windows)
        self._settings = settings
        self._secret = secret
        self._level = options.level
        self._members = options.members
        self._capacity = capacity

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._noise: NoiseSource | None = None
        # How many releases there are depends on values, where an agent queries those of its class
        # alone.
        told = ("releases", "refusals") if self._settings.schedule == "round_robin" else ()
        self._counters = {name: metric_counter(name) for name in ("estimates", *told)}
        self._rejected = {
            why: metric_counter("rejected_", why)
            for why in ("late", "duplicate", "too_many_agents")
        }

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        return self._windows.released(number)

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[Any]:
        """Step through the windows that have ended, the earliest first.

        Charge, and only then tell.
        """
        samples = take_waiting_samples(cells.waiting, due[-1].number, self._windows)
        if self._noise is None:
            self._noise = noise_from_secret(self._secret.load(), self._settings.name)

        # The state of the federation, and what it has spent.
        shard = FederationShard(
            self._settings, self._noise, self._capacity, cells.federation.read() or b""
        )
        spend = SpendLedger(cells.charges.read() or b"")
        rows = ReleaseLedger(spend, cells.ledger.read)
        told: list[Any] = []

        for tick in due:
            taken, samples = waiting_up_to(samples, tick.number, self._windows)
            turn = shard.turn(taken, tick.number, self._windows)
            charged, refused, row = rows.charge(turn.released, shard.words(turn))
            if row is not None:
                cells.ledger.add(row)

            # An agent whose release was refused goes on alone.
            shard.alone[turn.reader[refused]] = True
            for reason, unused in turn.unused.items():
                self._rejected[reason].inc(unused)

            told += self._tell(shard, charged, refused, turn, tick)

        # Both states are written before a result leaves.
        cells.charges.write(spend.to_bytes())
        cells.federation.write(shard.to_bytes())
        yield from told

    def _tell(
        self,
        shard: FederationShard,
        batch: ReleaseBatch,
        refused: Bools,
        turn: PairTurn,
        tick: Tick,
    ) -> Iterator[Any]:
        time = self._windows.released(tick.number)
        names = shard.names

        # Refused releases are public; their numbers follow from budgets.
        for place in np.flatnonzero(refused).tolist():
            yield TaggedOutput(
                REFUSALS, with_window_time(time, self._refusal(shard, batch, turn, place))
            )

        goes = np.flatnonzero(~refused)
        for name, number in (("refusals", len(refused) - len(goes)), ("releases", len(goes))):
            if name in self._counters:
                self._counters[name].inc(number)

        if len(goes):
            agent, reader = (
                pa.array([names[place] for place in who[goes].tolist()], pa.large_string())
                for who in (batch.releases.agent, turn.reader)
            )
            columns = pairwise_release_columns(batch, goes)
            yield with_window_time(
                time,
                PairBatch(
                    agent=agent,
                    reader=reader,
                    number=tick.number,
                    releases=columns,
                    time=batch.time[goes],
                ),
            )

        # Answers for agents with new samples in the window.
        if len(seen := shard.stream.seen_since(self._begin(tick.number))):
            lines = self._lines(shard, tick, seen)
            self._counters["estimates"].inc(len(lines))
            yield TaggedOutput(ESTIMATES, with_window_time(time, EstimateBatch(lines)))

    def _begin(self, number: int) -> float:
        refresh = self._windows.refresh

        if refresh is None:
            return -np.inf
        return number * refresh

    def _refusal(
        self, shard: FederationShard, batch: ReleaseBatch, turn: PairTurn, place: int
    ) -> Refusal:
        names = shard.names
        index = int(batch.releases.index[place])
        agent = int(batch.releases.agent[place])
        reader = int(turn.reader[place])

        return Refusal(
            release_id=pairwise_release_ids(
                [names[agent]], [names[reader]], [index], deployment=self._settings.name
            )[0],
            agent=names[agent],
            time=time_as_datetime(float(batch.time[place])),
            spent=index,
            asked=1,
            remaining=self._settings.release.horizon - index,
        )

    def _lines(self, shard: FederationShard, tick: Tick, seen: Ints) -> list[bytes]:
        """Write the estimates of agents with new samples as the engine does."""
        stream = shard.stream
        release = self._settings.release
        answer, own = stream.estimate(seen, level=self._level)

        # Agents that go on alone answer with their own mean.
        alone = shard.alone[seen]
        value, low, high, gain, size = (
            np.where(alone, getattr(own, name), getattr(answer, name))
            for name in ("value", "lower", "upper", "effective_class_size", "class_size")
        )
        columns: dict[str, Any] = {
            "agent": [shard.names[number] for number in seen.tolist()],
            "n": stream.counts()[seen].tolist(),
            "value": value.tolist(),
            "interval": np.stack([low, high], axis=1).tolist(),
            "local": own.value.tolist(),
            "local_interval": np.stack([own.lower, own.upper], axis=1).tolist(),
            "effective_class_size": gain.tolist(),
            "class_size": size.tolist(),
            "component": answer.component.tolist(),
            "membership": answer.membership.tolist(),
        }

        # Members are told to their agent only.
        if self._members:
            members = [
                [] if shard.alone[number] else stream.members(number) for number in seen.tolist()
            ]
            columns["members"] = members

        constants = {
            "time": iso_times(np.array([tick.newest]))[0],
            "level": self._level,
            "method": "pairwise",
            "epsilon": float(release.epsilon),
            "delta": float(release.delta),
            "mode": release.mode,
        }

        return list(encode_columns_as_lines(PersonalEstimate, columns, constants).lines)


def pairwise_capacity(settings: PairwiseStreamSettings, most: int) -> int:
    """Say how many agents there may be.

    As many as a state of 256 MiB holds, or fewer that were chosen.

    Raises
    ------
    ValueError
        If more were chosen.
    """
    if settings.most_agents is None:
        return most
    fit = settings.most_agents // 2  # of 1 GiB
    rule = f"be at most {fit} for a state of 256 MiB, or come with partners"
    require(most <= fit or most == MAX_AGENTS, "max_agents", rule, most)

    return min(most, fit)


def _choices(settings: PairwiseStreamSettings) -> dict[str, Any]:
    return {
        name: getattr(settings, name)
        for name in ("schedule", "weights", "variance", "stddev", "significance")
    }


def run_pairs_file(
    settings: PairwiseStreamSettings,
    source: SourceLocation,
    sinks: Mapping[str, Path | str],
    *,
    secret: SecretLocation,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
) -> dict[str, int]:
    """Read a file or a topic, let agents query each other, answer everyone once.

    Return the pipeline's counters.

    **Privacy.** Only estimates leave, each for its agent: what one agent releases to another stays
    in the pipeline.
    """
    capacity = pairwise_capacity(settings, engine_options.max_agents)

    def build(pipeline: beam.Pipeline) -> None:
        read = agents_part_outputs(ReadAgents(settings.release, engine_options, secret, 1))
        split = agents_part_split(
            pipeline | "Source" >> beam.Create([source], reshuffle=False) | "Read" >> read
        )
        step = StepFederation(settings, WINDOWS, secret, engine_options, capacity)
        estimates = step_pairs(split, step, WINDOWS).estimates

        for place in sinks.values():
            write = WriteEvents(place, _lines, role="sink", trust=Trust.PRIVATE)
            _ = estimates | "Write estimates" >> write

    counters = run_on_runner(runner, arguments, build)
    for place in sinks.values():
        if isinstance(place, Path):
            place.touch()

    return counters


def _lines(batch: EstimateBatch) -> EventLines:
    return EventLines(PersonalEstimate, batch.lines)
