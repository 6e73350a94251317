"""`meanstream audit rounds`.

Users as canaries through every stage of a round, guessed by their reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from meanstream.lab.audits.audit_rows import thrown_away_secret
from meanstream.lab.evidence.audit_record import require_auditable
from meanstream.lab.evidence.one_run import LEAST_CANARIES, pure_one_run
from meanstream.operators.estimators.registry import (
    ESTIMATORS,
    distinct_estimators,
    estimator_class,
)
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries
from meanstream.operators.validation import require, require_least
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window

if TYPE_CHECKING:
    from meanstream.lab.evidence.audit_record import AuditRow
    from meanstream.operators.records import Floats, Words

SAMPLES = 5
"""Of each user."""
CATEGORIES = ("a", "b", "c", "d")
"""Of estimators of shares."""
DAY = 86_400_000_000
MOST_BEFORE = 16
"""Windows without canaries, before one into which they are carried."""


def audit_rounds_rows(
    names: Sequence[str], *, epsilon: float, users: int, seed: int | None = None
) -> tuple[Iterator[AuditRow], list[str]]:
    """Design the rounds that are requested; give what their reports prove."""
    with refusing_options():
        require_auditable(epsilon)
        require(seed is None or seed >= 0, "seed", "be at least 0", seed)
        require_least(2 * LEAST_CANARIES, users=users)

    everything = not names or "all" in names
    designed = {}
    needs = []
    for name in distinct_estimators() if everything else names:
        if name not in ESTIMATORS or estimator_class(name).trust != "local":
            if everything:
                continue
            raise BadOption(f"name must be all or an estimator of local privacy, got {name!r}")

        try:
            designed[name] = _designed(name, epsilon, users)
        except ValueError as error:
            if not everything:
                raise BadOption(str(error)) from None
            needs.append(f"left out: {name} ({error})")

    notes = [
        "users' samples lie at one bound, or are of one category, by a coin each (the first one, where a sample is "
        "protected)",
        "half of the reports teach a score, the others are guessed",
    ]

    if any(this.settings.carries for this in designed.values()):
        notes.append("where windows are carried on, the one after some without canaries is audited")

    return _rows(designed, users, seed), [*notes, *needs]


def _designed(name: str, epsilon: float, users: int) -> WindowRound:
    shares = estimator_class(name).answers == "shares"
    settings = RoundsSettings(
        lower=0,
        upper=1 if shares else 10,
        epsilon=epsilon,
        window="1d",
        estimator=name,
        name="audit",
        sizes=f"point:{SAMPLES}",
        categories=CATEGORIES if shares else None,
        quantiles=(0.5,) if estimator_class(name).answers == "quantiles" else None,
    )
    round_of_window = WindowRound(settings, Window(0, DAY), users)
    _ = round_of_window.stages

    return round_of_window


def _rows(designed: dict[str, WindowRound], users: int, seed: int | None) -> Iterator[AuditRow]:
    import numpy as np

    rng = np.random.default_rng(seed)
    secret = thrown_away_secret(seed).encode()
    words = keyed_owner_words([f"canary {i}" for i in range(users)])
    coins = rng.integers(0, 2, users)
    count = np.full(users, SAMPLES)

    for name, first in designed.items():
        round_of_window = _after_others(first, secret, words) if first.settings.carries else first
        stage_of = round_of_window.stage_of(words)
        public = Public()
        own = (
            1 if round_of_window.estimator.privacy_unit == "sample" else SAMPLES
        )  # that many samples of a user are protected
        grid = round_of_window.settings.grid
        first_samples = grid.encode(_ends_of(round_of_window.settings)[coins])
        others = grid.encode(_ends_of(round_of_window.settings)[:1])
        total = own * first_samples + (SAMPLES - own) * others
        held = Summaries(user=words, count=count, total=total, first=first_samples, span=grid.span)

        for stage in round_of_window.stages:
            in_stage = stage_of == stage
            reports = round_of_window.reports(secret, stage, public, held.take(in_stage))
            if in_stage.sum() >= 2 * LEAST_CANARIES:
                step = round_of_window.estimator.rounds[stage]
                what = f"reports of stage {stage} ({step.name})"
                yield pure_one_run(
                    f"{name}.{stage}",
                    reports,
                    coins[in_stage],
                    epsilon=round_of_window.settings.epsilon,
                    what=what,
                )

            decoded = round_of_window.decode(
                stage, public, round_of_window.tally(stage, public, reports)[0]
            )
            public = public if isinstance(decoded, Estimate) else decoded


def _ends_of(settings: RoundsSettings) -> Floats:
    """Give the two values that are guessed: the bounds, or the first and the last category."""
    import numpy as np

    last = settings.ends[1] if settings.categories is None else len(settings.categories) - 1
    return np.array([0.0, float(last)])


def _after_others(first: WindowRound, secret: bytes, words: Words) -> WindowRound:
    """Give a window into which others are carried.

    As many as it takes until users are queried in another way for good.

    The others' users are all alike, in the middle of the bounds; what is carried is a function of
    public results.
    """
    import numpy as np

    span = FixedPoint(0.0, 10.0).span
    middle = np.full(len(words), span // 2)
    held = Summaries(user=words, count=np.ones_like(middle), total=middle, first=middle, span=span)
    round_of_window = first

    for number in range(1, MOST_BEFORE + 1):
        public = Public()
        stage_of = round_of_window.stage_of(words)
        shares = round_of_window.estimator.shares

        for stage in round_of_window.stages:
            reports = round_of_window.reports(secret, stage, public, held.take(stage_of == stage))
            decoded = round_of_window.decode(
                stage, public, round_of_window.tally(stage, public, reports)[0]
            )
            if isinstance(decoded, Estimate):
                window = Window(number * DAY, (number + 1) * DAY)
                round_of_window = replace(
                    round_of_window, window=window, carried=round_of_window.carried_after(decoded)
                )
            else:
                public = decoded

        if (
            len(round_of_window.stages) > len(first.stages)
            and round_of_window.estimator.shares == shares
        ):
            break

    return round_of_window
