"""Metrics: what they count, that they show nothing but public figures, and the server and probes
around them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.collaboration.registry import answers_from_releases, make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import pooled_variance
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.streaming.agents import public_population as personal
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import REASONS, Metrics
from meanstream.streaming.metrics.private_answers import PrivateMetrics
from tests.streaming.metrics.conftest import LOWER, OPTIONS, SAMPLES, SETTINGS, UPPER, Life
from tests.streaming.support.scripted_source import ScriptedSample


def bucket(name: str, bound: float) -> str:
    return f'meanstream_{name}_bucket{{le="{bound}"}}'


def test_what_is_counted(new_life: Callable[..., Life]) -> None:
    late = [("agent 1", 1.0, 5.0), ("agent 2", 1.0, 6.0)]
    again = [(SAMPLES[179][0], 5.0, 179.0)]  # an id is its agent's own
    ids = [*range(1, 183), 180]
    life = new_life().run([*SAMPLES, *late, *again], ids)
    figures = life.figures
    assert figures["meanstream_events_total"] == 183
    rejected = {
        reason: figures[f'meanstream_rejects_total{{reason="{reason}"}}'] for reason in REASONS
    }
    assert {reason: n for reason, n in rejected.items() if n} == {"late": 2, "duplicate": 1}
    assert figures["meanstream_releases_total"] == len(life.releases.lines) > 0
    assert figures["meanstream_ledger_rows"] == len(life.releases.lines)
    assert figures["meanstream_ledger_bytes"] == sum(map(len, life.releases.lines))
    assert figures["meanstream_estimates_total"] == len(life.estimates.lines) > 0
    assert figures["meanstream_refusals_total"] == 0
    assert figures["meanstream_agents"] == 12
    assert figures["meanstream_ready"] == 1
    assert figures["meanstream_checkpoint_age_seconds"] == 0
    assert figures["meanstream_watermark_lag_seconds"] == pytest.approx(1000 - 179)
    assert (
        figures["meanstream_commit_seconds_count"]
        == figures["meanstream_batch_seconds_count"]
        == life.stats.commits
    )
    assert "meanstream_input_lag_events" not in figures  # the script does not tell


def test_budgets_are_those_of_the_releases(new_life: Callable[..., Life]) -> None:
    few = [
        sample for sample in SAMPLES if sample[0] not in {"agent 0", "agent 1"} or sample[2] < 30
    ]
    life = new_life().run([*few, ("newcomer", 1.0, 200.0)])
    made = Counter(msgspec.json.decode(line)["agent"] for line in life.releases.lines)
    spent = (
        np.array([made[name] for name in {*(sample[0] for sample in few), "newcomer"}])
        / SETTINGS.horizon
    )
    assert len(set(spent.tolist())) >= 3
    figures = life.figures
    for bound in np.arange(11) / 10:
        assert figures[bucket("budget_spent_ratio", bound)] == np.count_nonzero(
            spent <= bound + 1e-9
        )
    assert figures["meanstream_budget_spent_ratio_gcount"] == len(spent)
    assert figures["meanstream_budget_spent_ratio_gsum"] == pytest.approx(spent.sum())
    assert figures["meanstream_budget_spent_ratio_max"] == spent.max() == 1
    assert figures["meanstream_agents_exhausted"] == np.count_nonzero(spent == 1)


def released(
    lines: Sequence[bytes], settings: AgentsSettings
) -> tuple[ReleaseColumns, VariancePosterior]:
    """Read what each agent has released, and what is known of the variance of a sample, off what
    was published."""
    events = [msgspec.json.decode(line) for line in lines]
    number = {name: i for i, name in enumerate(dict.fromkeys(event["agent"] for event in events))}

    def columns(rows: list[dict[str, Any]]) -> ReleaseColumns:
        return ReleaseColumns(
            agent=np.array([number[row["agent"]] for row in rows]),
            index=np.array([row["index"] for row in rows]),
            count=np.array([row["n"] for row in rows]),
            total=np.array([row["total"] for row in rows]),
            mean=np.array([row["mean"] for row in rows]),
            noise_variance=np.array([row["noise_variance"] for row in rows]),
        )

    followed, before = FollowedReleases(settings), NewestReleases()
    for event in events:
        followed.observe(columns([event]), before.replaced(columns([event])))
    newest = columns(list({event["agent"]: event for event in events}.values()))
    return followed.combined(newest), followed.posterior


@pytest.mark.parametrize("method", ["learned_prior", "tests", "none"])
def test_anybody_can_compute_the_precision_from_the_releases(
    method: str, new_life: Callable[..., Life]
) -> None:
    """The shown half-widths and class sizes follow from the published file alone, hence hold
    nothing else."""
    life = new_life(options=replace(OPTIONS, collaboration=method)).run(SAMPLES)
    latest, pool = released(life.releases.lines, SETTINGS)
    variance = pooled_variance(latest, pool.median)
    collaboration = make_collaboration(method, lower=LOWER, upper=UPPER)
    fitted = collaboration.fit_summary(collaboration.summarize(latest), pool)
    answer = answers_from_releases(fitted, latest, variance, level=OPTIONS.level)
    half_width: Floats = (
        np.clip(answer.upper, LOWER, UPPER) - np.clip(answer.lower, LOWER, UPPER)
    ) / 2
    figures = life.figures
    assert figures["meanstream_released_half_width_median"] == pytest.approx(np.median(half_width))
    assert figures["meanstream_released_class_size_median"] == pytest.approx(
        np.median(answer.effective_class_size)
    )
    for bound in (0.625, 1.25, 2.5):
        assert figures[bucket("released_half_width", bound)] == np.count_nonzero(
            half_width <= bound
        )
    for bound in (1.0, 1.5, 2.0):
        expected = np.count_nonzero(answer.effective_class_size <= bound * (1 + 1e-12))
        assert figures[bucket("released_class_size", bound)] == expected
    assert figures["meanstream_released_half_width_gcount"] == len(latest) == 12
    description = fitted.describe()
    assert figures["meanstream_prior_components"] == description["n_components"]
    assert ("meanstream_prior_spread" in figures) == (method == "learned_prior")
    same = description.get("count_probability", {}).get("same")
    told = {
        "prior_spread": description.get("spread"),
        "prior_count_ratio": None if same is None else 1 - same,
    }
    for (
        name,
        expected,
    ) in told.items():  # added up one by one here, in batches there: sums agree to 12 digits
        shown = figures.get(f"meanstream_{name}")
        assert shown is None if expected is None else shown == pytest.approx(expected, rel=1e-12)


def test_private_figures_are_those_of_the_estimates_and_of_the_page(
    new_life: Callable[..., Life],
) -> None:
    """One meaning per name: what an agent is told, what the page draws and what the operator's
    Prometheus keeps."""
    life = new_life(metrics_type=PrivateMetrics).run(SAMPLES)
    newest = {event["agent"]: event for event in map(msgspec.json.decode, life.estimates.lines)}
    assert len(newest) == 12

    def median(interval: str) -> float:
        return float(np.median([(e[interval][1] - e[interval][0]) / 2 for e in newest.values()]))

    figures = {name.partition("{")[0]: value for name, value in life.figures.items()}
    together, alone = (
        figures[f"meanstream_estimate_half_width_{which}median"] for which in ("", "alone_")
    )
    assert (together, alone) == pytest.approx((median("interval"), median("local_interval")))
    assert figures["meanstream_estimate_class_size_median"] == pytest.approx(
        np.median([event["effective_class_size"] for event in newest.values()])
    )
    drawn = life.telemetry.view().precision[-1]
    assert (drawn.together[1], drawn.alone[1]) == pytest.approx((together, alone))
    assert figures["meanstream_clipped_total"] == 0
    assert all('trust="private"' in name for name in life.figures)


def test_of_many_agents_some_are_looked_at(
    new_life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal, "MOST_SHOWN", 5)
    figures = new_life().run(SAMPLES).figures
    assert figures["meanstream_released_half_width_gcount"] == 5
    assert figures["meanstream_budget_spent_ratio_gcount"] == 12


def changed(index: int, value: float) -> list[ScriptedSample]:
    agent, _, time = SAMPLES[index]
    return [*SAMPLES[:index], (agent, value, time), *SAMPLES[index + 1 :]]


def after_the_last_release() -> tuple[list[ScriptedSample], list[ScriptedSample]]:
    """Differ in the last sample, when no agent has a release left: estimates differ, releases do
    not."""
    two = {"agent 10", "agent 11"}  # few, so that one value moves the median
    return [s for s in changed(179, 0.5) if s[0] in two], [
        s for s in changed(179, 9.5) if s[0] in two
    ]


def beyond_the_bound() -> tuple[list[ScriptedSample], list[ScriptedSample]]:
    """Differ in a value on the bound or beyond it: all sums are the same, but one more value is
    clipped."""
    return changed(20, UPPER), changed(20, UPPER + 5)


class ShowsClipped(Metrics):
    """A known-bad twin: exports how many values were clipped."""

    def observe(self, stats: EngineStats) -> None:
        super().observe(stats)
        self.clipped = stats.clipped

    def exposition(self) -> bytes:
        return super().exposition() + b"meanstream_clipped_total %d\n" % self.clipped


class ShowsOwnWidths(Metrics):
    """A known-bad twin: exports the half-width of the personal estimates."""

    def observe(self, stats: EngineStats) -> None:
        super().observe(stats)
        self.width = stats.median_half_width

    def exposition(self) -> bytes:
        return super().exposition() + f"meanstream_own_half_width {self.width}\n".encode()


@pytest.mark.parametrize("pair", [after_the_last_release, beyond_the_bound])
@pytest.mark.parametrize("metrics_type", [Metrics, ShowsClipped, ShowsOwnWidths])
def test_streams_with_the_same_releases_have_the_same_metrics(
    pair: Callable[[], tuple[list[ScriptedSample], list[ScriptedSample]]],
    metrics_type: type[Metrics],
    new_life: Callable[..., Life],
) -> None:
    one, two = (new_life(metrics_type=metrics_type).run(samples) for samples in pair())
    assert one.releases.lines == two.releases.lines
    assert len(one.pages) == len(two.pages) >= 5
    leaks = (metrics_type, pair) in {
        (ShowsClipped, beyond_the_bound),
        (ShowsOwnWidths, after_the_last_release),
    }
    assert (one.untimed == two.untimed) != leaks


def test_before_the_first_release_no_value_shows(new_life: Callable[..., Life]) -> None:
    settings = replace(SETTINGS, schedule="geometric:100,2")
    mirrored = [(agent, UPPER - value, time) for agent, value, time in SAMPLES]
    one, two = (new_life(settings=settings).run(samples) for samples in (SAMPLES, mirrored))
    assert one.estimates.lines != two.estimates.lines
    assert one.untimed == two.untimed


def test_other_releases_show(new_life: Callable[..., Life]) -> None:
    """The comparison sees a difference where there is one."""
    mirrored = [(agent, UPPER - value, time) for agent, value, time in SAMPLES]
    one, two = (new_life().run(samples) for samples in (SAMPLES, mirrored))
    assert one.untimed != two.untimed


def test_no_metric_has_an_agent_or_a_label_beyond_the_known(new_life: Callable[..., Life]) -> None:
    life = new_life().run(SAMPLES)
    text = life.pages[-1].decode()
    assert "agent 1" not in text
    assert set(re.findall(r"[{,](\w+)=", text)) == {"le", "python", "reason", "version"}


def test_one_file_imports_the_client() -> None:
    root = Path(__file__).parents[3]
    importing = []
    for package in ("meanstream", "operators", "streaming", "pipelines"):
        for path in (root / package).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = [
                alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
            ]
            names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
            if any(name.partition(".")[0] == "prometheus_client" for name in names):
                importing.append(path.name)
    assert importing == ["engine_metrics.py"]
