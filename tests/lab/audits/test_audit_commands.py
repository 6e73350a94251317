"""`meanstream audit`: the table, its JSON, and exit code 1 with the name of what promises too much."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from meanstream.lab.audits.audit_rows import thrown_away_secret
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.estimators.carried.carried_stages import NarrowReports
from meanstream.operators.rounds.channels import window_channel as window
from meanstream.operators.rounds.channels.registry import best_channel
from tests.pipelines.command_line import asks, meanstream


def test_mechanisms_as_a_table_and_as_json() -> None:
    ran = meanstream("audit", "mechanism", "channel.one_bit", "vote.sue", "--epsilon", "0.5")
    assert ran.code == 0
    lines = ran.out.decode().splitlines()
    assert lines[1].split() == ["channel.one_bit", "0.5", "0.5000", "1.000", "0.5000", "0"]
    assert "2 audited" in lines[-1]
    found = meanstream("audit", "mechanism", "channel.one_bit", "--json").json
    assert found["violated"] == []
    assert found["rows"][0]["ratio"] == pytest.approx(1.0)


def test_a_mechanism_that_promises_too_much_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toeplitz, "l2_sensitivity", property(lambda self: 1.0))
    ran = meanstream("audit", "mechanism", "counter")
    assert ran.code == 1
    assert b"VIOLATED" in ran.out
    assert (
        ran.err
        == b"meanstream: privacy must be as claimed, got less from counter.toeplitz.gaussian\n"
    )


@pytest.mark.parametrize(
    "bad",
    [
        ["nobody"],
        ["--epsilon", "0"],
        ["--delta", "2"],
        ["counter", "--epsilon", "1e-6"],
        ["--epsilon", "31"],
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(bad: list[str]) -> None:
    assert " must " in meanstream("audit", "mechanism", *bad).message


def test_rounds_prove_most_of_their_epsilon() -> None:
    """False alarms: 1e-6 for each row. Half of 6,000 users are guessed, in two stages of `kent`."""
    found = meanstream(
        "audit", "rounds", "one_shot", "kent", "item", "--users", "6000", "--seed", "1", "--json"
    )
    assert found.code == 0, found.err
    rows = {row["name"]: row for row in found.json["rows"]}
    assert [*rows] == ["one_shot.0", "kent.0", "kent.1", "item.0"]
    assert all(0.5 < rows[name]["proved"] < 1.3 for name in ("one_shot.0", "kent.1"))


def test_a_window_into_which_others_are_carried_is_audited_in_every_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its first window nobody reports in the narrow one, which hangs on what is carried. False alarms: as above."""
    typed = ("audit", "rounds", "repeating", "--users", "12000", "--epsilon", "2", "--seed", "1")
    rows = {row["name"]: row for row in meanstream(*typed, "--json").json["rows"]}
    assert [*rows] == ["repeating.0", "repeating.2"]  # too few vote
    assert all(1.0 < row["proved"] < 2.4 for row in rows.values())
    # Known-bad twin: reports in the narrow window through a channel of twice the epsilon.
    channel = NarrowReports.channel
    monkeypatch.setattr(
        NarrowReports,
        "channel",
        lambda self, public: best_channel(2 * channel(self, public).epsilon, 1),
    )
    assert meanstream(*typed).err.endswith(b"got less from repeating.2\n")


def test_rounds_with_a_channel_that_says_too_much_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def louder(epsilon: float, points: int, window: int) -> tuple[int, int]:
        return masses(2 * epsilon, points, window)

    masses = window._masses
    monkeypatch.setattr(window, "_masses", louder)
    ran = meanstream("audit", "rounds", "duchi", "--users", "6000", "--seed", "1")
    assert ran.code == 1
    assert ran.err == b"meanstream: privacy must be as claimed, got less from duchi.0\n"


@pytest.mark.parametrize(
    "bad",
    [
        ["nobody"],
        ["cummings.ratio"],
        ["kent.l2"],
        ["--users", "10"],
        ["--seed", "-1"],
        ["--epsilon", "0"],
        ["--epsilon", "1e300"],
    ],
)
def test_rounds_that_cannot_be_audited_are_refused_in_one_line(bad: list[str]) -> None:
    assert " must be " in meanstream("audit", "rounds", *bad).message


def test_ones_own_configuration_is_audited_through_the_engine_with_deaths_and_a_replay(
    tmp_path: Path,
) -> None:
    """False alarms: 1e-6 for each row. What the configuration says of epsilon is what is claimed."""
    config = tmp_path / "run.yaml"
    config.write_text(
        "lower: -30\nupper: 120\nepsilon: 2\ndelta: 1.0e-6\nhorizon: 4\nname: delays\nsource: none.csv\n"
    )
    typed = ("--config", str(config), "--canaries", "400", "--kills", "4", "--seed", "1", "--json")
    with patch("os.fsync"):
        ran = asks("audit", "engine", *typed)
    assert ran.code == 0, ran.err
    row = ran.json["rows"][0]
    assert (row["name"], row["claimed"]) == ("engine", 2.0)
    assert "4 deaths, a replay into a lost store" in row["method"] + row["assumption"]
    assert any("temporary" in note for note in ran.json["notes"])
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


@pytest.mark.parametrize(
    "audit",
    [
        ("engine", "--through", "agents", "--canaries", "400"),
        ("engine", "--through", "engine", "--canaries", "400", "--kills", "4"),
        ("rounds", "one_shot", "repeating", "--users", "2000"),
    ],
    ids=["agents", "engine", "rounds"],
)
def test_a_seed_repeats_an_audit_to_the_byte(
    audit: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEANSTREAM_HORIZON", "3")  # fewer releases are audited sooner
    with patch("os.fsync"):
        one, same, other = (
            meanstream("audit", *audit, "--seed", seed, "--json").out for seed in "778"
        )
    assert one == same != other


def test_no_seed_draws_a_secret_of_256_bits() -> None:
    found = {thrown_away_secret(None) for _ in range(100)}
    assert (len(found), {len(bytes.fromhex(secret)) for secret in found}) == (100, {32})


FORGETS = ("audit", "engine", "--memory", "half-life:40", "--seed", "1")


@pytest.mark.parametrize("memory", ["half-life:40", "window:40", "window:12w"])
def test_a_memory_is_audited_on_both_ways_by_the_sums_that_are_noised(memory: str) -> None:
    """False alarms: 1e-6 for each row."""
    said = (
        "audit",
        "engine",
        "--memory",
        memory,
        "--seed",
        "1",
        *(("--schedule", "every:1w") if memory.endswith("w") else ()),
    )
    agents = asks(*said, "--through", "agents", "--canaries", "6000", "--json")
    with patch("os.fsync"):
        engine = asks(*said, "--through", "engine", "--canaries", "400", "--kills", "3", "--json")
    for ran in (agents, engine):
        assert (ran.code, ran.json["violated"]) == (0, []), ran.err
        row = ran.json["rows"][0]
        assert "the first of releases without end" in row["method"]
        assert row["proved"] > 0.4 * row["ceiling"] > 0.2
    assert agents.json["rows"][0]["proved"] > 0.85


def test_a_memory_calibrated_for_its_steady_releases_alone_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first releases are closer together than the later ones, and forget less."""
    norm: Any = Decayed.l2_sensitivity
    steady = property(lambda self: 0.8 * norm.func(Decayed(self.horizon, decay=self.decay)))
    monkeypatch.setattr(Decayed, "l2_sensitivity", steady)
    ran = asks(*FORGETS, "--through", "agents", "--canaries", "6000", "--json")
    assert ran.code == 1
    assert "engine" in ran.json["violated"]


def test_a_horizon_that_nobody_comes_to_the_end_of_is_audited_by_its_first_releases() -> None:
    ran = asks(
        "audit", "engine", "--horizon", "20000", "--canaries", "400", "--seed", "1", "--json"
    )
    assert ran.code == 0, ran.err
    assert "200 releases jointly, the first of 20,000" in ran.json["rows"][0]["method"]


@pytest.mark.parametrize("epsilon", ["31", "1e12"])
def test_what_every_coin_shows_is_no_claim_to_audit(epsilon: str) -> None:
    assert asks("audit", "engine", "--epsilon", epsilon).message.startswith(
        "epsilon must be at most 30 for an audit"
    )
    most = ("--epsilon", "30", "--through", "agents", "--canaries", "400", "--seed", "1")
    assert asks("audit", "engine", *most).code == 0
    assert asks("audit", "engine", *most, "--counter", "pm1", "--noise", "laplace").code == 0
    assert (
        asks(
            "audit",
            "engine",
            "--epsilon",
            "20",
            *most[2:],
            "--counter",
            "pm1",
            "--noise",
            "laplace",
        ).code
        == 0
    )


def test_what_a_configuration_says_of_sources_and_numbers_is_no_obstacle(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    told = "lower: 0\nupper: 8\nepsilon: 2\ndelta: 1.0e-6\nhorizon: 2\nmax_agents: 5\nmax_future: 1s\nquorum: 2\n"
    config.write_text(
        told + "person: who\nper_person: 2\nlateness: 5m\nbatch_size: 7\nsource: none.csv\n"
    )
    with patch("os.fsync"):
        typed = (
            "--config",
            str(config),
            "--canaries",
            "400",
            "--kills",
            "2",
            "--seed",
            "1",
            "--json",
        )
        ran = asks("audit", "engine", *typed)
    assert (ran.code, ran.json["violated"]) == (0, []), ran.err


@pytest.mark.parametrize(
    "bad", [["--seed", "-5"], ["--upper", "1e-150"], ["--kills", "-1"], ["--through", "nowhere"]]
)
def test_an_engine_that_cannot_be_audited_is_refused_in_one_line(bad: list[str]) -> None:
    assert " must be " in asks("audit", "engine", *bad).message
