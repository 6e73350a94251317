"""Non-interference of `run agents`: an agent's unreleased values change no byte on any surface of
anybody else.

Two worlds differ in values that no release has shown, or in all of an agent's values under releases
that are the same. The whole command runs with every output on, is killed, goes on, starts again;
everything that reads its store follows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.half_life_memory import KeptSums
from meanstream.operators.agents.own_histogram import histogram_bin_of_cells
from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.shares.shares_prior import NoisedShares, fit_shares_prior
from meanstream.streaming.agents.estimates import ShareEstimates
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.metrics.engine_metrics import Metrics
from tests.noninterference.agents_worlds import (
    ASKED,
    CHANGED,
    FEW,
    FORGETTING,
    MEMORIES,
    MOVED,
    UNRELEASED,
    Told,
    at_once,
    hosted,
    querying,
    releases_as,
    to_parquet,
)
from tests.noninterference.comparison import Compared, Seen, nothing_differs
from tests.noninterference.surfaces import METRICS_PATHS

Ports = tuple[int, ...]
MANY = 20_000


@pytest.mark.parametrize(
    "values",
    [("least", "far outside"), pytest.param(("most", "tiny"), marks=pytest.mark.full)],
    ids=" and ".join,
)
def test_unreleased_values_change_no_byte_of_anybody_else(
    values: tuple[str, ...], tmp_path: Path, ports: Ports
) -> None:
    first = hosted(tmp_path / "first", 3, ports)
    assert_all_is_seen(first)
    assert len(first) > 40
    assert sum(map(len, first.values())) > 200_000
    assert nothing_differs(
        first, *(hosted(tmp_path / n, 3, ports, unreleased=UNRELEASED[n]) for n in values)
    )


def test_no_file_of_columns_tells_of_them(tmp_path: Path) -> None:
    first, other = (
        to_parquet(tmp_path / "first", 3),
        to_parquet(tmp_path / "other", 3, unreleased=1e300),
    )
    files = {name.partition("/")[0] for name in first if name.endswith(".parquet")}
    assert files == {
        f"file {role}.parquet" for role in ("releases", "population", "dead_letters", "estimates")
    }
    assert nothing_differs(first, other)


@pytest.mark.parametrize("agents", [FEW, pytest.param(300, marks=pytest.mark.full)])
def test_neither_do_values_under_releases_that_are_the_same(
    agents: int, tmp_path: Path, ports: Ports
) -> None:
    told: Told = {}
    with releases_as(told):
        first = hosted(tmp_path / "first", agents, ports)
        other = hosted(tmp_path / "other", agents, ports, unreleased=2.75, all_of_it=True)
    assert sum(key[0] != "vote" for key in told) == agents
    assert nothing_differs(first, other)


def test_unreleased_values_of_agents_that_query_each_other_change_no_byte(
    tmp_path: Path, ports: Ports
) -> None:
    first, *others = (
        querying(tmp_path / str(value), 3, ports, unreleased=value)
        for value in (None, UNRELEASED["most"], UNRELEASED["far outside"])
    )
    assert first["file estimates.jsonl"].count(b'"method":"pairwise"') > 4
    assert b'"releases": 6,' in first["run: standard output"]
    assert b'"members":["a' in first["file estimates.jsonl"]
    assert nothing_differs(first, *others)


def test_pairs_that_answer_once_more_are_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: a reader receives what no release has charged, as if the last one had come now."""
    receive = PairwiseStream._receive_releases

    def leaking(self: PairwiseStream, reader: Any, target: Any, *rest: Any) -> Any:
        made = receive(self, reader, target, *rest)
        self._state["pair"]["value"][:] += self._own["mean"][1]
        return made

    monkeypatch.setattr(PairwiseStream, "_receive_releases", leaking)
    first, other = (
        querying(tmp_path / str(value), 3, ports, unreleased=value)
        for value in (None, UNRELEASED["most"])
    )
    assert Compared(first, other)["file estimates.jsonl"] > 0


def told_quantiles(folder: Path, ports: Ports) -> tuple[Seen, Seen, Seen]:
    """Run agents that are told quantiles; one differs in all values under the same releases, or in
    those unreleased."""
    told: Told = {}
    with releases_as(told):
        first = at_once(folder / "first", FEW, ports, options=ASKED)
        same = at_once(folder / "same", FEW, ports, options=ASKED, unreleased=2.75, all_of_it=True)
    later = at_once(folder / "later", FEW, ports, options=ASKED, unreleased=UNRELEASED["most"])
    return first, same, later


def test_neither_does_anything_where_agents_are_told_quantiles(
    tmp_path: Path, ports: Ports
) -> None:
    first, same, later = told_quantiles(tmp_path, ports)
    assert first["file releases.jsonl"].count(b'"histogram":') == FEW
    assert (
        first["file estimates.jsonl"].count(b'"quantiles":') == FEW - 1
    )  # all but the changed agent's
    assert nothing_differs(first, same)
    assert nothing_differs(first, later)


def test_a_prior_of_what_agents_have_and_did_not_release_is_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ShareEstimates.own

    def leaking(self: ShareEstimates, prior: Any, own: Any) -> Any:
        of_cell = histogram_bin_of_cells(prior.mean.shape[1])
        counts = np.stack([np.bincount(of_cell, row) for row in own.cells])
        found = NoisedShares(counts=counts, samples=own.count, variance=np.zeros(len(counts)))
        return answer(self, fit_shares_prior(found, np.ones(counts.shape[1])), own)

    monkeypatch.setattr(ShareEstimates, "own", leaking)
    first, same, later = told_quantiles(tmp_path, ports)
    assert Compared(first, same)["file estimates.jsonl"] > 0
    assert Compared(first, later)["file estimates.jsonl"] > 0


def forgetting(
    folder: Path,
    ports: Ports,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any] = FORGETTING,
) -> tuple[Seen, Seen, int]:
    """Run agents that forget; one's mean has moved in the other world, which it alone knows. Count
    changes there."""
    how: dict[str, Any] = {"options": options, **MOVED}
    first = at_once(folder / "first", 3, ports, **how)
    found: list[int] = []
    test = OwnChanges.test

    def counting(self: OwnChanges, *given: Any) -> Any:
        tested = test(self, *given)
        found.append(len(tested.changed))
        return tested

    monkeypatch.setattr(OwnChanges, "test", counting)
    return (
        first,
        at_once(folder / "other", 3, ports, unreleased=UNRELEASED["most"], **how),
        sum(found),
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_neither_does_a_mean_that_moved_which_its_agent_alone_knows(
    memory: str, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other, changes = forgetting(tmp_path, ports, monkeypatch, MEMORIES[memory])
    assert changes > 0
    assert first["file releases.jsonl"].count(b"\n") == 3 * 6
    assert first["file estimates.jsonl"]
    assert nothing_differs(first, other)


def test_an_agent_that_releases_when_it_has_changed_is_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = KeptSums.test

    def early(self: KeptSums, rows: Any, agent: Any, now: Any) -> None:
        before = rows["own_weight"][agent].copy()
        test(self, rows, agent, now)
        moved = rows["own_weight"][agent] != before
        rows["due"][agent[moved]] = now.number[moved] + 1

    monkeypatch.setattr(KeptSums, "test", early)
    assert Compared(*forgetting(tmp_path, ports, monkeypatch)[:2])["file releases.jsonl"] > 0


OLD = {"collaboration": LearnedPrior.name}
"""Of which the twins are."""


@pytest.mark.parametrize("agents", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_neither_do_they_with_the_pooled_prior(agents: int, tmp_path: Path, ports: Ports) -> None:
    """The changed agent's raw mean is the least of all, or one among others."""
    told: Told = {}
    with releases_as(told):
        first = at_once(tmp_path / "first", agents, ports, options=OLD)
        other = at_once(
            tmp_path / "other", agents, ports, options=OLD, unreleased=-1.0, all_of_it=True
        )
    assert first["file estimates.jsonl"].count(b"\n") == agents - 1  # all but the changed agent's
    assert nothing_differs(first, other)


def assert_all_is_seen(seen: Seen) -> None:
    """Nothing is compared that is empty in all worlds, and what should fail has failed."""
    codes = {
        name.removesuffix(": exit code"): data
        for name, data in seen.items()
        if name.endswith("exit code")
    }
    failed = {name for name, code in codes.items() if code != b"0"}
    assert failed == {"killed", "with another epsilon"}
    for role in ("releases", "population", "dead_letters", "estimates"):
        assert seen[f"file {role}.jsonl"], role
    assert b" wait | lag" in seen["continued: standard error"]
    assert b"2 replayed" in seen["replay: standard error"]
    assert b"rejected" in seen["continued: standard output"]
    for path in METRICS_PATHS:
        assert b"200" in seen[f"GET {path} of the metrics"]
    assert b"flow" in seen["GET /data of the page"]
    assert f"GET /agent?name={CHANGED} of the page" not in seen


# -- known-bad twins, each of which the test above has to catch ------------------------------------------------------


def shows_clipped(patch: pytest.MonkeyPatch) -> None:
    exposition, observe = Metrics.collect, Metrics.observe

    def observed(self: Metrics, stats: object) -> None:
        self.clipped = getattr(stats, "clipped", 0)  # type: ignore[attr-defined]
        observe(self, stats)  # type: ignore[arg-type]

    def collected(self: Metrics) -> object:
        from prometheus_client.core import GaugeMetricFamily

        yield from exposition(self)
        yield GaugeMetricFamily(
            "meanstream_clipped", "Clipped values.", value=getattr(self, "clipped", 0)
        )

    patch.setattr(Metrics, "observe", observed)
    patch.setattr(Metrics, "collect", collected)


def floors_by_all(patch: pytest.MonkeyPatch) -> None:
    posterior = FittedPrior.posterior

    def floored(self: FittedPrior, mean: Any, variance: Any) -> Any:
        means, variances = posterior(self, mean, variance)
        return np.stack([means, np.maximum(variances, 2 * variances.min())])

    patch.setattr(FittedPrior, "posterior", floored)


def rejects_out_of_bounds(patch: pytest.MonkeyPatch) -> None:
    """What `--out-of-bounds reject` did: a public dead letter says whose value was out of
    bounds."""
    admit = Intake.admit

    def rejecting(self: Intake, samples: Any, rejects: Any, now: float) -> None:
        outside = self._grid.clips(samples.value)
        admit(self, self._reject(samples, outside, "out_of_bounds", rejects), rejects, now)

    patch.setattr(Intake, "admit", rejecting)


def cuts_by_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("meanstream.streaming.sources.lines.MOST_BYTES", 1)
    patch.setattr("meanstream.streaming.sources.lines.READ_BYTES", 256)
    patch.setattr("meanstream.streaming.sources.lines.LINE_BYTES", 1)
    patch.setattr("meanstream.streaming.sources.lines.BLOCK_BYTES", 256)


TWINS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "metrics that count clipped values": (shows_clipped, "GET /metrics of the metrics"),
    "a floor of the variance over all agents": (floors_by_all, "file estimates.jsonl"),
    "out-of-bounds reject": (rejects_out_of_bounds, "file dead_letters.jsonl"),
}


@pytest.mark.parametrize("twin", TWINS)
def test_twins_are_caught(
    twin: str, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, where = TWINS[twin]
    spoil(monkeypatch)
    first = at_once(tmp_path / "a", 3, ports, options=OLD)
    other = at_once(tmp_path / "b", 3, ports, options=OLD, unreleased=1e300)
    assert first["once: exit code"] == b"0"
    assert Compared(first, other).get(where, 0) > 0


def test_batches_that_end_after_so_many_bytes_are_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: as text files were read once; longer values move what is in a batch, and what is said
    after each."""
    long = {"unreleased": -0.12345678901234567, "all_of_it": True}
    where = "continued: standard error"

    def compared(name: str) -> Compared:
        first = hosted(tmp_path / name / "first", 3, ports, read=False)
        return Compared(first, hosted(tmp_path / name / "other", 3, ports, read=False, **long))

    assert where not in compared("of lines")
    cuts_by_bytes(monkeypatch)
    assert where in compared("of bytes")
