"""Whose draw it is: one spelling of settings, one name per deployment, one key per set of
parameters.

Each test has the known-bad twin that it catches: a key of settings as they were typed, a key
without the name, one key under two epsilons. The attacks are exact: a twin gives the sums away to a
few grid units, or shows that they are equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.running_mean import PrivateMean
from meanstream.operators.noise.keyed import (
    KeyedNoise,
    NoiseIds,
    canonical,
    canonical_spelling,
    keyed_owner_words,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.store.secret_source import noise_from_secret

SECRET = b"395a3bce14bdb4e289967f87cf699a41"
SETTINGS = AgentsSettings(
    lower=-30,
    upper=120,
    epsilon=1,
    delta=1e-6,
    counter="pm1",
    schedule="geometric:5,2",
    horizon=3,
    name="delays",
)
N_AGENTS, N_SAMPLES = 30, 5
VALUES = np.random.default_rng(0).uniform(-30, 120, (N_SAMPLES, N_AGENTS))


class OneKeyNoise(KeyedNoise):
    """Known bad: every consumer draws under the key that it is handed."""

    def derived(self, purpose: str, settings: Mapping[str, Any]) -> Self:
        return self


def totals(settings: AgentsSettings, noise: KeyedNoise, values: Floats = VALUES) -> Ints:
    """The first noised sum of each agent, in grid units."""
    agents = Agents(settings, noise)
    agents.add_agents([f"agent {i}" for i in range(N_AGENTS)])
    who = np.tile(np.arange(N_AGENTS), N_SAMPLES)
    return agents.update(who, values.ravel(), np.arange(len(who), dtype=float)).releases.total


SPELLINGS: list[dict[str, Any]] = [
    {"lower": -30, "upper": 120, "epsilon": 1},
    {"lower": -30.0, "upper": 120.0, "epsilon": 1.0},
    {"lower": np.float64(-30), "upper": np.int64(120), "epsilon": np.float32(1)},
    {"lower": "-30", "upper": "1.2e2", "epsilon": "1"},
    {"horizon": 3.0},
    {"horizon": "3"},
    {"schedule": "geometric:05,2.0"},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_one_value_is_one_key_however_it_is_written(spelling: dict[str, Any]) -> None:
    """Row 4: the README's own lines, typed with integers and with floats, released twice,
    uncharged."""
    noise, again = noise_from_secret(SECRET, "delays"), replace(SETTINGS, **spelling)
    assert again == SETTINGS
    assert canonical(asdict(again)) == canonical(asdict(SETTINGS))
    assert totals(again, noise).tolist() == totals(SETTINGS, noise).tolist()


def test_known_bad_twin_settings_as_they_were_typed() -> None:
    def typed(lower: Any) -> KeyedNoise:
        plain = json.dumps({**asdict(SETTINGS), "lower": lower}, sort_keys=True)
        return OneKeyNoise(
            SECRET, deployment=hashlib.sha256(plain.encode()).hexdigest(), purpose="agents"
        )

    assert totals(SETTINGS, typed(-30)).tolist() != totals(SETTINGS, typed(-30.0)).tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [("every:60m", "every:1h"), ("every:24h", "every:1d"), ("preferred:010", "preferred:10")],
)
def test_one_schedule_has_one_spelling(one: str, other: str) -> None:
    assert replace(SETTINGS, schedule=one) == replace(SETTINGS, schedule=other)


def test_a_default_that_is_spelled_out_changes_nothing() -> None:
    tree = replace(SETTINGS, counter="pm2", horizon=40)
    assert replace(tree, levels=tree.mechanism.parts) == tree
    assert canonical_spelling(replace(SETTINGS, mode="tuned")) == canonical_spelling(SETTINGS)


def test_keys_of_before_there_were_votes_stay_what_they_were() -> None:
    """Without votes nothing says so; with the share that is the default today the key names it, as
    it always did."""
    known = {"lower": -30.0, "upper": 120.0, "epsilon": 1.0, "delta": 1e-6}
    before = {**known, "counter": "toeplitz", "noise": "gaussian"}
    assert canonical_spelling(AgentsSettings(**before, spread_share=0)) == known
    assert canonical_spelling(AgentsSettings(**before)) == {**known, "spread_share": 0.1}
    # Another mechanism is the default by now: keys that are made today name it.
    assert canonical_spelling(AgentsSettings(**known)) == {
        **known,
        "counter": "pm1",
        "noise": "staircase",
        "spread_share": 0.1,
    }
    usual = AgentsSettings(**known, noise="gaussian")
    assert canonical_spelling(usual) == {**known, "counter": "optimal", "spread_share": 0.1}
    paper = {"counter": "pm1", "mode": "paper", "calibration": "classical"}
    assert canonical_spelling(AgentsSettings(**known, **paper)) == {**known, **paper}


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": -30.0, "upper": np.float64(120), "epsilon": 1.0},
        {"lower": "-30", "upper": "120", "epsilon": "1", "users": "50"},
        {"window": "24h"},
        {"options": {"clip": 2.0}},
    ],
    ids=str,
)
def test_rounds_have_one_spelling(changes: dict[str, Any]) -> None:
    plain = RoundsSettings(
        lower=-30,
        upper=120,
        epsilon=1,
        window="1d",
        estimator="one_shot",
        users=50,
        options={"clip": 2},
        name="delays",
    )
    same = replace(plain, **changes)
    assert canonical(same.plain()) == canonical(plain.plain())
    assert same.digest() == plain.digest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("point:4", "point:04.0"),
        ("two:100,1000,0.5", "two:1e2,1000.0,.50"),
        ("zipf:1.2,90", "zipf: 1.20,9e1"),
    ],
)
def test_one_law_of_sizes_has_one_spelling(one: str, other: str) -> None:
    """On Beam, where no store tells two spellings apart, each user made a second report with other
    noise."""
    plain = RoundsSettings(
        lower=-30, upper=120, epsilon=1, window="1d", estimator="kent", name="delays", sizes=one
    )
    assert replace(plain, sizes=other).digest() == plain.digest()
    assert plain.sizes == one
    with pytest.raises(ValueError, match="sizes must be one of point:k"):
        SizeDistribution.parse(one.replace("0", "0_0").replace("4", "4_0"))


def test_bounds_that_are_one_for_all_coordinates_have_one_spelling() -> None:
    plain = RoundsSettings(
        lower=0,
        upper=9,
        epsilon=1,
        window="1d",
        estimator="kent.linf",
        sizes="point:9",
        values=("x", "y"),
        name="delays",
    )
    made = [replace(plain, lower=lower) for lower in (0, (0, 0.0), [0, 0], (0, 1))]
    assert len({one.digest() for one in made[:3]}) == 1
    assert made[3].digest() != made[0].digest()
    assert made[3].lower == (0.0, 1.0)


def test_pairwise_settings_have_one_spelling() -> None:
    common = {"delta": 1e-6, "name": "pair", "counter": "pm1", "spread_share": 0.0}
    one = PairwiseStreamSettings(release=AgentsSettings(lower=0, upper=1, epsilon=1, **common))
    same = PairwiseStreamSettings(
        release=AgentsSettings(lower=0.0, upper="1", epsilon=np.int64(1), **common)
    )
    assert canonical(one.key()) == canonical(same.key())
    released = PairwiseStreamSettings(release=one.release, variance="released")
    halved = PairwiseStreamSettings(release=released.means)
    assert released.key() != halved.key()  # other noise of the same budget has another key


@pytest.mark.parametrize("bad", [True, "1:30", "thirty", "٣", "1_0", [1.0]], ids=repr)
def test_what_is_no_number_is_one_line(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^epsilon must be a number, got "):
        replace(SETTINGS, epsilon=bad)


def test_two_deployments_under_one_secret_share_no_draw() -> None:
    """Row 5: with equal noise, equal releases say that the private sums are equal."""
    one, other = (
        totals(replace(SETTINGS, name=name), noise_from_secret(SECRET, name))
        for name in ("dep", "arr")
    )
    # A draw has a standard deviation of some 1e6 grid units: two independent ones are equal with
    # probability < 1e-6.
    assert np.count_nonzero(one == other) == 0


def test_known_bad_twin_a_key_without_the_name() -> None:
    unnamed = replace(SETTINGS, name=None)
    one, other = (totals(unnamed, noise_from_secret(SECRET, "everybody")) for _ in ("dep", "arr"))
    assert (one == other).all()


def test_reports_of_two_deployments_of_rounds_share_no_bits() -> None:
    settings = RoundsSettings(
        lower=-30,
        upper=120,
        epsilon=1.0,
        window="1d",
        estimator="one_shot",
        users=50,
        name="departures",
    )
    begin = 15_706 * 86_400_000_000
    window = Window(begin, begin + 86_400_000_000)
    words = keyed_owner_words([f"user {i}" for i in range(50)])
    ids = [
        WindowRound(replace(settings, name=name), window, users=50).stage_noise(SECRET, 0, {})
        for name in ("departures", "arrivals")
    ]
    bits = [
        noise.bits(NoiseIds(words, np.zeros(50, np.int64), np.zeros(50, np.uint64)))
        for noise in ids
    ]
    assert np.count_nonzero(bits[0] == bits[1]) == 0


def solved(noise: KeyedNoise) -> tuple[Floats, Floats]:
    """Read two noised sums of the same samples as sum + scale * draw; solve for the sums, and give
    the true ones."""
    strong, weak = (replace(SETTINGS, epsilon=one, noise="gaussian") for one in (1.0, 2.0))
    first, second = (totals(settings, noise).astype(float) for settings in (strong, weak))
    ratio = weak.fresh.variance**0.5 / strong.fresh.variance**0.5
    return (second - ratio * first) / (1 - ratio), SETTINGS.grid.encode(VALUES).sum(axis=0).astype(
        float
    )


def test_one_source_of_noise_serves_two_epsilons() -> None:
    """Row 6: one `KeyedNoise`, as in the README's example, under two epsilons was solved for the
    sums."""
    found, true = solved(KeyedNoise(SECRET, deployment="example", purpose="agents"))
    # Independent draws leave the noise of one release: of 30 errors none is near a millionth of it.
    assert np.abs(found - true).min() > 1e-6 * SETTINGS.fresh.variance**0.5


def test_known_bad_twin_one_key_under_two_epsilons() -> None:
    found, true = solved(OneKeyNoise(SECRET, deployment="example", purpose="agents"))
    assert np.abs(found - true).max() < 5  # grid units, of a standard deviation of some 1e6


def test_a_running_mean_takes_a_key_of_its_own() -> None:
    """Instances under two epsilons that share an identity, as restored ones do, still draw
    apart."""
    noise = KeyedNoise(SECRET, deployment="example", purpose="private mean")
    means = [
        PrivateMean(0, 1, epsilon=epsilon, delta=1e-6, noise=noise, schedule=5)
        for epsilon in (1, 1.0, 2)
    ]
    keys = [mean.snapshot()["key"] for mean in means]
    assert keys[0] == keys[1] != keys[2]
