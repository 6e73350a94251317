"""The default on panels that it was not made for: `make panels`.

Panels of public data packages, most of their owners with 1 to 9 values and bounds that are wider
than the data. Half of each owner's values are the stream, shuffled or in the order of time; the
other half is the truth, whose own sampling error is taken off. Squared errors and lengths of
intervals are relative to learning alone. Beside the default stand two yardsticks that are given
what nobody knows: the variance of a sample, and for one of them all raw means.

Half of the panels, by a hash of their names, were used to make the default (`--half made`). The
others are reported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import log_ndtr

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-anchors" / "bin" / "python"
READER = ROOT / "benchmarks" / "anchors" / "read_panels.py"
BOUNDS = {
    "docvis": (0, 60), "hhninc": (0, 30), "rating": (0.5, 5), "inspection_score": (0, 100),
    "earnings_med": (0, 200_000), "score": (0, 100), "gcsescore": (0, 8), "math": (300, 800),
    "mAch": (-5, 30), "arr_delay": (-60, 180), "air_time": (0, 600), "height": (0, 5000),
    "SURENESS": (1, 6), "hr": (0, 60), "h": (0, 250), "value": (0, 200), "bili": (0, 40),
    "fare": (0, 600), "passen": (0, 5000), "math4": (0, 100), "lunch": (0, 100),
    "hours": (0, 5000), "murders": (0, 100), "lweekinc": (0, 12), "earnings": (0, 200_000),
    "price.skw": (0, 2), "price.heinz": (0, 3), "tmathssk": (300, 700), "exercise": (0, 30),
    "lnw": (0, 5), "avg_price_per_room": (0, 500), "lead_time": (0, 500), "year": (1500, 2020),
    "ct_result": (0, 50), "eval": (1, 5), "wind": (0, 200), "emp": (0, 120),
    "StartSpeed": (50, 110), "lifeExp": (20, 90),
}  # fmt: skip
"""Bounds by the name of the value, as somebody would declare them; answers of yes and no have 0 and 1."""
OTHER_BOUNDS = {
    "Chem97, score by school": (0, 10), "egsingle, math by childid": (-6, 6),
    "nafld2, value by id (smoke)": (0, 1),
}  # fmt: skip
EPSILONS = (0.5, 1.0, 3.0)
RANGES = ((1, 1), (2, 4), (5, 10), (11, 30), (31, 10**9))
MANY = 200
"""Owners whose errors and coverage are a range's."""
FAR = 0.95
Z = 1.959964


@dataclass(frozen=True)
class Panel:
    """Values of owners, in the order of time if they are `timed`."""

    name: str
    owner: Ints
    value: Floats
    lower: float
    upper: float
    timed: bool


@dataclass(frozen=True)
class Cell:
    """One half of a panel: what each owner knows, and what is true of it."""

    panel: Panel
    stream: npt.NDArray[np.bool_]
    count: Ints
    own: Floats
    squares: Floats
    others: Ints
    truth: Floats

    @property
    def sample_variance(self) -> float:
        """Pooled variance of one value, raw."""
        return float(self.squares.sum() / max(np.maximum(self.count - 1, 0).sum(), 1))


@dataclass(frozen=True)
class Answer:
    """Values and intervals of all owners of a cell."""

    value: Floats
    lower: Floats
    upper: Floats


def read_panels(half: str) -> Iterator[Panel]:
    """Give the panels of a half: those that the default was `made` on, or `reported` ones."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(PYTHON), "-W", "ignore", str(READER), folder], check=True)

        for path in sorted(Path(folder, half).glob("*.parquet")):
            name = path.stem
            table = pd.read_parquet(path)
            column = name.split(", ")[1].split(" by ")[0]
            lower, upper = OTHER_BOUNDS.get(name, BOUNDS.get(column, (0, 1)))
            owner, _ = pd.factorize(table["owner"])
            value = np.clip(table["value"].to_numpy(float), lower, upper)
            timed = bool((table["place"] >= 0).all())
            yield Panel(name, owner.astype(np.int64), value, float(lower), float(upper), timed)


def halved(panel: Panel, seed: int, *, in_time: bool) -> Cell:
    """A random half of the values, or the first half of each owner's."""
    owner = panel.owner
    n = int(owner.max()) + 1
    if in_time:
        whole = np.bincount(owner)
        order = np.argsort(owner, kind="stable")
        place = np.empty(len(owner), np.int64)
        place[order] = np.arange(len(owner)) - np.repeat(np.cumsum(whole) - whole, whole)
        stream = place < (whole[owner] + 1) // 2
    else:
        stream = np.random.default_rng([seed, len(owner)]).random(len(owner)) < 0.5

    def means(rows: npt.NDArray[np.bool_]) -> tuple[Ints, Floats]:
        count = np.bincount(owner[rows], minlength=n)
        return count, np.bincount(owner[rows], panel.value[rows], n) / np.maximum(count, 1)

    count, own = means(stream)
    others, truth = means(~stream)
    deviations = (panel.value - own[owner])[stream] ** 2
    squares = np.bincount(owner[stream], deviations, n)

    return Cell(panel, stream, count, own, squares, others, truth)


def by_default(cell: Cell, epsilon: float, seed: int) -> Answer:
    """What `run agents` answers at the end of the stream."""
    panel = cell.panel
    settings = AgentsSettings(
        lower=panel.lower, upper=panel.upper, epsilon=epsilon, horizon=1, schedule=AT_THE_END, name="panels"
    )  # fmt: skip
    # Seeded: for measurement only.
    key = np.random.default_rng([seed, 77]).bytes(32)
    agents = Agents(settings, KeyedNoise(key, deployment="panels", purpose=panel.name))
    agents.add_agents([str(number) for number in range(len(cell.count))])

    rows = np.flatnonzero(cell.stream)
    agents.update(panel.owner[rows], panel.value[rows], rows.astype(np.float64))
    made = agents.release_now(float(len(cell.stream)))
    followed = FollowedReleases(settings)
    followed.observe(made.releases, made.before)

    prior = make_collaboration("learned_prior", lower=panel.lower, upper=panel.upper)
    newest = followed.combined(agents.latest())
    fitted = prior.fit_summary(prior.summarize(newest), followed.posterior)
    own = pooled_own_means(agents.own(), followed.posterior)
    found = estimate_with_two_variances(fitted, own)

    columns = np.full((3, len(cell.count)), np.nan)
    columns[:, own.agent] = np.clip(
        [found.value, found.lower, found.upper], panel.lower, panel.upper
    )

    return Answer(*columns)


def on_a_page(cell: Cell, epsilon: float | None, seed: int) -> Answer:
    """One normal prior with the variance of a sample given; from raw means where epsilon is None."""
    panel = cell.panel
    width = panel.upper - panel.lower
    some = cell.count > 0
    n = cell.count[some]
    own = cell.own[some]
    of_sample = cell.sample_variance
    scale = np.full(len(n), 1e-6 * width) if epsilon is None else width / epsilon / n
    noise = np.random.default_rng([seed, 78]).laplace(size=len(n)) * scale
    release = own if epsilon is None else own + noise

    # p(c, tau) on a grid around a weighted median.
    order = np.argsort(release)
    weight = np.cumsum(1 / (scale + 0.05 * width)[order])
    middle = release[order][np.searchsorted(weight, weight[-1] / 2)]
    error = 1.3 / np.sqrt((1 / (2 * scale**2 + 0.01 * width**2)).sum())
    centers = np.clip(middle + np.linspace(-4, 4, 17) * error, panel.lower, panel.upper)
    spreads = np.concatenate([[0.0005], np.geomspace(0.002, 0.4, 24)]) * width

    def log_likelihood(center: float, spread: float) -> float:
        stddev = np.sqrt(of_sample / n + spread**2)
        away = release - center
        if epsilon is None:
            return float((-np.log(stddev) - 0.5 * (away / stddev) ** 2).sum())
        ratio = stddev / scale
        above = away / scale + ratio**2 / 2 + log_ndtr(-(away / stddev + ratio))
        below = -away / scale + ratio**2 / 2 + log_ndtr(away / stddev - ratio)

        return float((np.logaddexp(above, below) - np.log(2 * scale)).sum())

    likelihood = np.array([[log_likelihood(c, t) for t in spreads] for c in centers])
    share = np.exp(likelihood - likelihood.max())
    share /= share.sum()
    left_out = 0.0 if epsilon is None else 0.4
    share *= np.cumsum(share.sum(axis=0)) > left_out

    # Each owner's own samples weigh in on what tau is.
    center, spread = (
        grid.ravel()[:, None] for grid in np.meshgrid(centers, spreads, indexing="ij")
    )
    used = share.ravel() > 1e-6 * share.max()
    center = center[used]
    spread = spread[used]
    prior = share.ravel()[used][:, None]
    pooled = (3 * of_sample + cell.squares[some]) / (3 + n - 1)
    variance = np.minimum(pooled, 2 * of_sample) / n

    total = variance + spread**2
    log_weight = np.log(prior) - 0.5 * np.log(total) - 0.5 * (own - center) ** 2 / total
    posterior = np.exp(log_weight - log_weight.max(axis=0))
    posterior /= posterior.sum(axis=0)

    kept = spread**2 / total
    answers = center + kept * (own - center)
    value = (posterior * answers).sum(axis=0)
    stddev = np.sqrt((posterior * (kept * variance + (answers - value) ** 2)).sum(axis=0))

    columns = np.full((3, len(cell.count)), np.nan)
    columns[:, some] = value, value - Z * stddev, value + Z * stddev
    return Answer(*columns)


def judged(cell: Cell, answer: Answer) -> dict[str, float]:
    """Error and length relative to alone; coverage of all, of the worst range of counts, of the far."""
    both = (cell.count > 0) & (cell.others > 0)
    count = cell.count[both]
    alone = cell.sample_variance / count
    truth = cell.truth[both]
    more = (answer.value[both] - truth) ** 2 - (cell.own[both] - truth) ** 2
    of_truth = Z**2 * cell.sample_variance / cell.others[both]

    low = answer.value[both] - np.sqrt((answer.value[both] - answer.lower[both]) ** 2 + of_truth)
    high = answer.value[both] + np.sqrt((answer.upper[both] - answer.value[both]) ** 2 + of_truth)
    covered = (low <= truth) & (truth <= high)
    length = (answer.upper[both] - answer.lower[both]) / (2 * Z * np.sqrt(alone))

    # The far: by all of an owner's values, stream and truth together.
    others = cell.others[both]
    everything = (cell.own[both] * count + truth * others) / (count + others)
    away = np.abs(everything - np.median(everything))
    far = away >= np.quantile(away, FAR)

    ranges = [(count >= least) & (count <= most) for least, most in RANGES]
    large = [which for which in ranges if which.sum() >= MANY]
    return {
        "error": 1 + float(more.sum() / alone.sum()),
        "length": float(np.median(length)),
        "cover": float(covered.mean()),
        "far": float(covered[far].mean()),
        "range error": max(
            (1 + float(more[w].sum() / alone[w].sum()) for w in large), default=np.nan
        ),
        "range cover": min((float(covered[w].mean()) for w in large), default=np.nan),
    }


def measured(panel: Panel, seeds: range) -> Iterator[dict[str, object]]:
    """All cells of a panel, by each way."""
    orders = ("shuffled", "time") if panel.timed else ("shuffled",)
    for order in orders:
        for seed in seeds:
            cell = halved(panel, seed, in_time=order == "time")
            public = judged(cell, on_a_page(cell, None, seed))

            for epsilon in EPSILONS:
                about = {"panel": panel.name, "order": order, "epsilon": epsilon}
                yield {**about, "way": "default", **judged(cell, by_default(cell, epsilon, seed))}
                yield {**about, "way": "page", **judged(cell, on_a_page(cell, epsilon, seed))}
                yield {**about, "way": "public", **public}


def table_lines(cells: pd.DataFrame, panels: list[Panel]) -> Iterator[str]:
    """One line for each panel: errors by epsilon, and what its intervals are like."""
    yield "| panel | owners | values of an owner | 0.5 | 1 | 3 | page | public | length | cover | far |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"

    for panel in panels:
        own = cells[cells["panel"] == panel.name]
        default = own[own["way"] == "default"]
        errors = [
            f"{of['error'].mean():.2f} ({of['error'].max():.2f})"
            for _, of in default.groupby("epsilon")
        ]
        others = [own[own["way"] == way]["error"].mean() for way in ("page", "public")]
        counts = np.bincount(panel.owner)
        figures = [default[name].mean() for name in ("length", "cover", "far")]

        numbers = [f"{number:.2f}" for number in (*others, *figures)]
        yield f"| {panel.name} | {len(counts):,} | {np.median(counts):.0f} | {' | '.join(errors + numbers)} |"


def summary_lines(cells: pd.DataFrame) -> Iterator[str]:
    """Means and worst cells of each way and epsilon."""
    yield (
        "| way | epsilon | error, mean | worst | cells above 1.1 | ranges above 1.15 | length "
        "| cover | least range | far |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"

    for (way, epsilon), own in cells.groupby(["way", "epsilon"]):
        error = own["error"]
        above = int((own["range error"] > 1.15).sum())
        yield (
            f"| {way} | {epsilon:g} | {error.mean():.2f} | {error.max():.2f} | "
            f"{int((error > 1.1).sum())} of {len(own)} | {above} | {own['length'].median():.2f} | "
            f"{own['cover'].mean():.3f} | {own['range cover'].min():.2f} | {own['far'].mean():.2f} |"
        )


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--half", choices=("reported", "made"), default="reported")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=41)
    asked = parser.parse_args()

    panels = list(read_panels(asked.half))
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    cells = pd.DataFrame([cell for panel in panels for cell in measured(panel, seeds)])
    print("\n".join([*summary_lines(cells), "", *table_lines(cells, panels)]))

    return 0


if __name__ == "__main__":
    sys.exit(main())
