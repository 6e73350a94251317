"""Kent's Fig. 4 on a file of one's own: errors that are known, what the curves show, files that are
refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meanstream.lab.reproduce.reproduce_kent import read_own_shares
from meanstream.lab.simulation.kent_schemes import (
    SCHEMES,
    OwnShares,
    own_mean_errors,
    own_share_errors,
)
from tests.pipelines.command_line import asks

SHARES = (0.4, 0.3, 0.1, 0.1, 0.05, 0.05)


def alike(users: int = 400, samples: int = 60) -> OwnShares:
    """Users of one law."""
    return OwnShares(
        np.random.default_rng(2).multinomial(samples, [0.5, 0.3, 0.2], users).astype(np.int64)
    )


def test_the_item_levels_err_as_computed_and_the_user_level_gains_from_more_samples() -> None:
    """Laplace noise drawn here gives the full item level's error within a fifth (its standard error
    is 4 %)."""
    data = alike()
    users, k = data.count.shape
    few, many = (
        own_share_errors(data, epsilon=4.0, constant=0.25, samples=samples, runs=30, seed=3)
        for samples in (6, 60)
    )
    assert set(few) == set(SCHEMES)
    rng, found = np.random.default_rng(5), []
    for _ in range(600):
        counts, order = data.drawn(6, rng), rng.permutation(users)
        errors = 0.0
        for j, group in enumerate(np.array_split(order, k)):
            noisy = counts[group, j].sum() + rng.laplace(0.0, 1.0 / 4.0, 6 * len(group)).sum()
            errors += (noisy / (6 * len(group)) - data.truth[j]) ** 2
        found.append(errors)
    assert np.mean(found) == pytest.approx(few["full item level"][0], rel=0.2)
    assert many["full item level"][0] < few["full item level"][0]
    assert many["user level"][0] < few["user level"][0]
    # One item of a user is one report of it, however many there are.
    ratio = many["one item"][0] / few["one item"][0]
    assert 0.5 < ratio < 2.0


def test_one_mean_errs_as_drawn_reports_do() -> None:
    """Reports drawn here, 2,000 times: four standard errors of a mean square are 13 %."""
    data = OwnShares(alike().count[:, :2])
    users = len(data.count)
    errors = own_mean_errors(data, epsilon=1.0, constant=0.5, samples=20, runs=20, seed=3)
    rng = np.random.default_rng(6)
    drawn: dict[str, list[float]] = {"one item": [], "semi-user level": [], "full item level": []}
    for _ in range(2_000):
        own = rng.hypergeometric(data.count[:, 0], data.count[:, 1], 20) / 20
        item = rng.random(users) < data.count[:, 0] / data.count.sum(axis=1)
        kept = rng.random(users) < np.e / (1 + np.e)
        report = np.where(kept, item, ~item)
        drawn["one item"].append(float(((report * (1 + np.e) - 1) / (np.e - 1)).mean()))
        drawn["semi-user level"].append(float((own + rng.laplace(0, 1, users)).mean()))
        noise = rng.laplace(0, 1, (users, 20)).mean(axis=1)
        drawn["full item level"].append(float((own + noise).mean()))

    for scheme, estimates in drawn.items():
        squares = np.mean((np.array(estimates) - data.truth[0]) ** 2)
        assert errors[scheme][0] == pytest.approx(squares, rel=0.13)

    assert errors["full item level"][0] < errors["user level"][0]


def write(path: Path, users: int, each: int, shares: tuple[float, ...] = SHARES) -> Path:
    rng = np.random.default_rng(1)
    rows = [
        f"u{i},{'abcdef'[c]}" for i in range(users) for c in rng.choice(len(shares), each, p=shares)
    ]
    path.write_text("\n".join(["officer,race", *rows, ",a", "u1,"]) + "\n")
    return path


def test_rare_categories_are_one_and_users_with_few_samples_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "stops.csv", 50, 12)
    path.write_text(path.read_text() + "late,a\n")
    data, names = read_own_shares(path, "officer", "race", least=12)
    assert names[0] == "a"
    assert names[1] == "b"
    assert names[3] == "all others"
    assert data.count.shape == (50, 4)
    assert (data.count.sum(axis=1) == 12).all()


@pytest.mark.parametrize(
    ("shares", "quantity"),
    [((0.5, 0.3, 0.2), "of all shares"), ((0.9, 0.1), "of the share of a, times epsilon^2")],
)
def test_the_command_draws_and_prints_each_scheme(
    tmp_path: Path, shares: tuple[float, ...], quantity: str
) -> None:
    path = write(tmp_path / "stops.csv", 60, 12, shares)
    typed = [
        "reproduce",
        "kent",
        "--figure",
        "4",
        "--file",
        str(path),
        "--user",
        "officer",
        "--value",
        "race",
    ]
    ran = asks(*typed, "--samples", "12", "--runs", "2", "--out", str(tmp_path))
    assert ran.code == 0, ran.err
    text = ran.out.decode()
    assert all(text.count(scheme) >= 4 for scheme in SCHEMES)
    assert text.count(quantity) == 4
    assert (tmp_path / "kent-figure-4.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--figure", "4"], "file must be given with --figure 4, and only then, got None"),
        (
            ["--figure", "2", "--file", "f.csv"],
            "file must be given with --figure 4, and only then, got f.csv",
        ),
        (["--figure", "4", "--file", "none.csv"], "file must be a CSV file, got 'none.csv'"),
        (
            ["--figure", "4", "--file", "F", "--value", "rage"],
            "file must be a CSV file with columns 'officer' and 'rage'",
        ),
        (
            ["--figure", "4", "--file", "F", "--value", "race"],
            "users must be at least 40 with 100 samples or more, got 0",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(typed: list[str], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "stops.csv", 50, 12)
    words = [str(path) if word == "F" else word for word in typed]
    ran = asks("reproduce", "kent", *words, "--user", "officer", "--out", str(tmp_path))
    assert ran.message.startswith(message)


@pytest.mark.parametrize(
    ("option", "value"), [("user", "officer"), ("value", "race"), ("samples", "50")]
)
def test_what_is_about_the_file_needs_it(option: str, value: str) -> None:
    ran = asks("reproduce", "kent", "--figure", "2", f"--{option}", value)
    shown = value if option == "samples" else repr(value)
    assert ran.message == f"{option} must be left out without --file, got {shown}"
