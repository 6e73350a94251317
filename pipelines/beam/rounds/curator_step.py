"""Rounds with a trusted curator on Beam.

Users' sums added up exactly, then noised once in a keyed step.

The adding up is a CombineFn, which a runner may run any number of times on any part of the users:
there is no noise in it. What comes out is private until `ReleaseOnce`, whose state remembers per
round and release what was released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam import coders, typehints
from apache_beam.coders import BytesCoder, typecoders
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.pipelines.beam.keyed_state.beam_state import MADE, StateOwner
from meanstream.pipelines.beam.rounds.known_results import (
    ESTIMATES,
    FINDINGS,
    NeedsFindings,
    WithFindings,
    known_findings_and_estimates,
    known_users_by_shard,
)
from meanstream.pipelines.beam.rounds.rounds_elements import StageFindings, UserBatch
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Combine, Step, discreet_step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.rounds.event_lines import estimate_event_line
from meanstream.streaming.rounds.rounds_curator import curator_noise_once, curator_sum
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorSums:
    """Private: what the samples of some users add up to, in one release of a round; no noise in it.

    Attributes
    ----------
    window : Window
        Of the round, microseconds.
    release : int
        From 0.
    users : int
        How many users the round is designed for.
    taking : int
        How many users there are, in all cohorts.
    tally : Tally
        Exact sums.
    public : dict
        What the releases before found.
    """

    window: Window
    release: int
    users: int
    taking: int
    tally: Tally
    public: Public = field(default_factory=dict)

    def __add__(self, other: CuratorSums) -> CuratorSums:
        if (self.window, self.release, self.users) != (other.window, other.release, other.users):
            raise ValueError(
                "sums added up must be of one release of one round, and of the same number of users"
            )

        return CuratorSums(
            window=self.window,
            release=self.release,
            users=self.users,
            taking=self.taking + other.taking,
            tally=self.tally + other.tally,
            public=self.public,
        )


class CuratorSumsCoder(coders.Coder):  # type: ignore[misc]
    """Private: exact sums, or None; they stay inside the curator's pipeline."""

    def encode(self, value: CuratorSums | None) -> bytes:
        """Whole numbers as text: they have no greatest one."""
        if value is None:
            return beam_event_to_json([])
        head = [
            *value.window,
            value.release,
            value.users,
            value.taking,
            value.public,
            value.tally.n,
        ]

        return beam_event_to_json([*head, *value.tally.sums])

    def decode(self, encoded: bytes) -> CuratorSums | None:
        """Read numbers."""
        parts = beam_event_from_json(encoded)
        if not parts:
            return None
        start, end, release, users, taking, public, n, *sums = parts
        tally = Tally(n, tuple(sums))
        window = Window(start, end)

        return CuratorSums(
            window=window, release=release, users=users, taking=taking, tally=tally, public=public
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(CuratorSums, CuratorSumsCoder)


class SumUp(NeedsFindings):
    """Private to private: what one release asks of the users of a batch, added up."""

    def __init__(self, settings: RoundsSettings, release: int) -> None:
        self._settings = settings
        self._release = release

    def process(
        self, element: tuple[int, UserBatch], findings: StageFindings | None = None
    ) -> Iterator[CuratorSums]:
        """Add up, once the release before has found something."""
        batch = element[1]
        settings = self._settings
        users = settings.users if findings is None else findings.users
        goes_on = findings is not None or (self._release == 0 and users is not None)

        if goes_on:  # otherwise the round has fewer releases than the pipeline
            this = WindowRound(settings, batch.window, users=users or 0)
            public = {} if findings is None else findings.public
            if self._release in this.stages:
                yield CuratorSums(
                    window=batch.window,
                    release=self._release,
                    users=settings.design_users(this.users),
                    taking=len(batch),
                    tally=curator_sum(
                        this,
                        self._release,
                        public,
                        batch.sums.summaries(batch.words, settings.grid),
                    ),
                    public=public,
                )


@typehints.with_input_types(CuratorSums)
@typehints.with_output_types(CuratorSums)
class AddSums(Combine):
    """Private: exact sums added up in any order.

    No noise: a runner may do this again, and with other parts.
    """

    def create_accumulator(self) -> CuratorSums | None:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: CuratorSums | None, sums: CuratorSums) -> CuratorSums:
        """Add one."""
        return sums if accumulator is None else accumulator + sums

    def merge_accumulators(self, accumulators: Iterable[CuratorSums | None]) -> CuratorSums | None:
        """Add up."""
        total: CuratorSums | None = None
        for accumulator in accumulators:
            if accumulator is not None:
                total = self.add_input(total, accumulator)

        return total

    def extract_output(self, accumulator: CuratorSums | None) -> CuratorSums | None:
        """Give the sum."""
        return accumulator

    def get_accumulator_coder(self) -> CuratorSumsCoder:
        """Bytes, as between steps."""
        return CuratorSumsCoder()


class ReleaseOnce(Step):
    """Private to public: noise drawn once for all users of a round, after adding up, keyed by round and release.

    **Privacy.** The noise is a function of the secret, the round, the release and the sums, so that a bundle that is
    executed again releases the same. The state, per round and release, holds a keyed digest of the sums that were
    released: the same sums are not released twice, and others of the same release not at all (counted as
    `refusals`).
    """

    MADE = MADE
    RELEASED = ReadModifyWriteStateSpec("released", BytesCoder())

    def __init__(self, settings: RoundsSettings, secret: SecretLocation, *, last: bool) -> None:
        self._owner = StateOwner(settings=rounds_deployment_identity(settings), secret=secret)
        self._settings = settings
        self._secret = secret
        self._last = last  # of the pipeline

    def setup(self) -> None:
        """Begin to count."""
        self._mark = self._owner.mark()
        self._refused = metric_counter("refusals")
        self._rounds = metric_counter("rounds")
        self._users = DistributionOf("rounds_window_users")

    def process(
        self,
        element: tuple[str, CuratorSums],
        released: Any = beam.DoFn.StateParam(RELEASED),  # noqa: B008 - Beam's way
        made: Any = beam.DoFn.StateParam(MADE),  # noqa: B008
    ) -> Iterator[WindowEstimate | TaggedOutput]:
        """Release, unless this was released before; findings go to `FINDINGS`."""
        self._mark.claim(made, released)
        sums = element[1]
        secret = self._secret.load()
        version = hashlib.blake2b(
            CuratorSumsCoder().encode(sums), key=hashlib.sha256(secret).digest()
        ).digest()
        before = released.read()

        if before is None:
            released.write(version)
            found = self._release(sums, secret)
            yield TaggedOutput(FINDINGS, found) if isinstance(found, StageFindings) else found
        elif before != version:
            self._refused.inc()

    def _release(self, sums: CuratorSums, secret: bytes) -> StageFindings | WindowEstimate:
        this = WindowRound(self._settings, sums.window, users=sums.users)
        if self._last and sums.release != this.stages[-1]:
            raise ValueError(
                f"max_stages must be at least {len(this.stages)} here, got {sums.release + 1}"
            )

        found = curator_noise_once(this, secret, sums.release, sums.public, sums.tally)
        if isinstance(found, Estimate):
            metric_counter("rounds_reports_", sums.release).inc(
                sums.taking
            )  # everyone who took part is charged once
            self._rounds.inc()
            self._users.update(sums.taking)

            return WindowEstimate.model_validate_json(
                estimate_event_line(this, found, sums.taking).lines[0]
            )

        return StageFindings(
            window=sums.window,
            stage=sums.release,
            users=sums.users,
            counted=sums.taking,
            public=found,
        )


class RunReleases(beam.PTransform):  # type: ignore[misc]
    """Private to public: users' sums per window, from `JoinUsers`, to one `WindowEstimate` per window by a curator.

    Parameters
    ----------
    settings : RoundsSettings
        With an estimator of central trust.
    secret : SecretLocation
        Where workers find the secret.
    releases : int
        How many the pipeline is made for.
    findings : PCollection of StageFindings, optional
        How many users each round is designed for, unless `settings.users` is given.
    shards : int
        As for `SummarizeUsers`.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretLocation,
        *,
        releases: int,
        findings: beam.PCollection | None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        self._placing = known_users_by_shard(shards)
        self._settings = settings
        self._secret = secret
        self._releases = releases
        self._findings = findings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Run the releases one after the other."""
        findings = self._findings
        estimates = []
        for release in range(self._releases):
            asked = SumUp(self._settings, release)
            sums = WithFindings(asked, findings, self._settings, self._placing, out=CuratorSums)
            step = ReleaseOnce(self._settings, self._secret, last=release == self._releases - 1)

            findings, found = known_findings_and_estimates(
                pcoll
                | f"Sum up {release}" >> sums
                | f"Add {release}"
                >> beam.CombineGlobally(AddSums()).without_defaults().with_output_types(CuratorSums)
                | f"Key {release}"
                >> beam.FlatMap(_keyed).with_output_types(tuple[str, CuratorSums])
                | f"Release {release}" >> beam.ParDo(step).with_outputs(FINDINGS, main=ESTIMATES),
                label=f"Of {release}",
            )
            estimates.append(found)

        return (
            estimates[0]
            if len(estimates) == 1
            else tuple(estimates) | "Estimates" >> beam.Flatten()
        )


@discreet_step
def _keyed(sums: CuratorSums | None) -> Iterator[tuple[str, CuratorSums]]:
    if sums is not None:
        yield f"{sums.window.start}/{sums.window.end}/{sums.release}", sums
