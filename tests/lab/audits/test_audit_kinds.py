"""`audit store` of agents that query each other and of federated sites: rows that say what their
owner could not, what goes on after a kill, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from meanstream.federated import FederatedSite, SiteRelease, SiteSettings
from meanstream.lab.audits.audit_pairs import spent_by_pair
from meanstream.lab.evidence.audit_record import NUMERIC
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.pipelines.commands.run import run_pairwise
from meanstream.streaming.agents.pairwise import pairwise_engine
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import (
    SECRET,
    Ran,
    meanstream,
    run_agents,
    spoil_row,
    write_samples,
)
from tests.streaming.support.dying import DieAt

AGENTS, STEPS = 5, 40
PROMISE = ("--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--name", "pairs")
SITE = SiteSettings(epsilon=1, delta=1e-6, releases=3, name="clinic")
OTHER_SECRET = "9b1f6c04d2a85e73bb40c9f1e6a7250d"  # noqa: S105 - of tests only
RELEASE, CHARGE = pairwise_engine.pair_rows, FederatedSite._charge


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    with patch("os.fsync"):
        yield


def run(folder: Path, *options: str, code: int = 0) -> Path:
    """Let everyone query everyone; give the store."""
    rng = np.random.default_rng(5)
    rows = [f"a{a},{x:.3f},{t}" for t in range(STEPS) for a, x in enumerate(rng.random(AGENTS))]
    (folder / "s.csv").write_text("\n".join(["agent,value,time", *rows]) + "\n")
    places = (
        "--source",
        f"{folder}/s.csv",
        "--store",
        f"{folder}/p.db",
        "--sink",
        f"{folder}/e.jsonl",
    )
    ran = meanstream("run", "agents", *places, *PROMISE, "--quiet", *options)
    assert ran.code == code, ran.err
    return folder / "p.db"


def run_site(folder: Path, rounds: int = 3) -> Path:
    with FederatedSite(folder / "site.db", SITE) as site:
        for number in range(rounds):
            site.release("stay", str(number), total=70.0, count=9, lower=0, upper=30)

    return folder / "site.db"


def audited(store: Path) -> Ran:
    return meanstream("audit", "store", str(store), "--json")


def audited_without_secret(store: Path) -> Ran:
    with patch.dict("os.environ"):
        del os.environ["MEANSTREAM_SECRET"]
        return audited(store)


ROUND_ROBIN = ("--schedule", "round_robin")


def forged(change: Callable[[dict[str, Any]], Any], *rows: Any, **named: Any) -> LedgerRows:
    """Rows as they are, but for one, which says something else."""
    right = RELEASE(*rows, **named)
    output = list(right.output)
    if len(output) > 7:
        event = json.loads(output[7])
        change(event)
        output[7] = json.dumps(event).encode()

    return replace(right, output=output)


def other(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event.update({name: value(event[name])})


FORGED = {
    "1 ids that do not match their agent and index": other("release_id", lambda _: "x/y:z:1"),
    "1 releases to a reader that is none": other("reader", lambda _: "nobody"),
    "1 releases that state another promise": other("epsilon", lambda epsilon: epsilon / 2),
    "1 means that do not match their sum on the grid": other("mean", lambda mean: mean + 1e-6),
    "1 releases that declare less noise than promised": other("noise_variance", lambda v: v / 2),
    "1 impossible counts": other("n", lambda _: 0),
    "1 releases that repeat or leave out a number of their pair": other("index", lambda k: k + 1),
}


@pytest.mark.parametrize("fault", FORGED)
def test_a_row_that_its_owner_could_not_have_written_is_named(fault: str, tmp_path: Path) -> None:
    with patch.object(pairwise_engine, "pair_rows", partial(forged, FORGED[fault])):
        store = run(tmp_path, *ROUND_ROBIN)

    ran = audited(store)
    assert ran.code == 1
    assert fault in ran.json["rows"][0]["fault"]


def test_a_total_that_is_not_the_noised_one_is_found_with_the_secret(tmp_path: Path) -> None:
    """No public number shows a total that is off by one, if its mean agrees."""

    def moved(event: dict[str, Any]) -> None:
        event["total"] += 1
        event["mean"] = event["total"] / event["n"] / 2**20

    with patch.object(pairwise_engine, "pair_rows", partial(forged, moved)):
        store = run(tmp_path, *ROUND_ROBIN)

    assert audited_without_secret(store).code == 0
    found = audited(store).json["rows"][1]["fault"]
    assert found == f"1 of {AGENTS * STEPS} releases are no exact sum with the draw of their id"


SITE_FORGED = {
    "1 ids that do not match their agent and index": {"site": "other"},
    "1 releases with another noise variance than promised": {"noise_variance": 1e-3},
    "1 means that do not match their sum on the grid": {"mean": 7.123456789},
    "1 impossible sums": {"mean": 2.0**20},
}


@pytest.mark.parametrize("fault", SITE_FORGED)
def test_a_release_that_its_site_could_not_have_made_is_named(fault: str, tmp_path: Path) -> None:
    def charge(self: FederatedSite, name: str, version: int, made: Any) -> None:
        CHARGE(self, name, version, replace(made, **SITE_FORGED[fault]) if "1" in name else made)

    with patch.object(FederatedSite, "_charge", charge):
        store = run_site(tmp_path)

    ran = audited(store)
    assert ran.code == 1
    assert ran.json["rows"][0]["fault"] == fault


def test_a_site_that_spends_more_than_it_has_is_named(tmp_path: Path) -> None:
    with patch.object(FederatedSite, "remaining", property(lambda _: 1)):
        store = run_site(tmp_path, rounds=5)

    assert audited(store).json["rows"][0]["fault"] == "2 releases past the budget"


SCHEDULES = ("round_robin", "restricted_round_robin")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("point", [CrashPoint.CHARGE_LEDGER, CrashPoint.COMMIT])
def test_a_run_that_was_killed_and_went_on_keeps_the_promise(
    point: CrashPoint, schedule: str, tmp_path: Path
) -> None:
    options = ("--schedule", schedule, "--batch-size", "17")
    for visit, moment in ((1, Moment.AFTER), (2, Moment.BEFORE)):
        dies = partial(run_pairwise.run_pairs, crash=DieAt(point, moment, visit))
        with patch.object(run_pairwise, "run_pairs", dies):
            store = run(tmp_path, *options, code=1)
        assert audited(store).code == 0

    ran = audited(run(tmp_path, *options))
    assert (ran.code, ran.json["violated"]) == (0, [])
    number = int(ran.json["rows"][1]["method"].split()[0])
    assert number == AGENTS * STEPS if schedule == "round_robin" else 0 < number <= AGENTS * STEPS
    assert f"{number:,} releases" in ran.json["notes"][1]
    assert "this audit is the operator's" in ran.json["notes"][3]


def test_what_all_readers_of_an_agent_learn_together_is_said(tmp_path: Path) -> None:
    """Four readers, each of epsilon 1 under pure noise."""
    ran = audited_without_secret(run(tmp_path, *ROUND_ROBIN))
    assert [row["name"] for row in ran.json["rows"]] == ["ledger"]
    notes = ran.json["notes"]
    assert notes[1] == (
        "5 agents, 20 pairs, 200 releases, at most 10 of one agent to one reader "
        "(the budget is 1,000,000)"
    )
    assert notes[2].startswith(
        "at most 4 readers of one agent; all of them together have epsilon 4.00"
    )
    assert "with the store's secret, which is not here, each draw is made again" in notes[-1]


@pytest.mark.parametrize(
    "change", [other("n", lambda _: "many"), other("total", lambda _: 10**30), lambda e: e.clear()]
)
def test_a_row_of_another_form_ends_with_1(change: Any, tmp_path: Path) -> None:
    with patch.object(pairwise_engine, "pair_rows", partial(forged, change)):
        store = run(tmp_path, *ROUND_ROBIN)

    ran = audited(store)
    assert (ran.code, ran.out) == (1, b"")
    assert b"got a fault in row 8 of the ledger" in ran.err


def test_a_release_of_another_form_ends_with_1(tmp_path: Path) -> None:
    with patch.object(SiteRelease, "plain", lambda self: {"site": self.site}):
        store = run_site(tmp_path)

    ran = audited(store)
    assert (ran.code, ran.out) == (1, b"")
    assert b"got a fault in row 1 of the ledger" in ran.err


def test_a_changed_ledger_ends_with_1(tmp_path: Path) -> None:
    store = run(tmp_path, *ROUND_ROBIN)
    spoil_row(store, 3)
    ran = meanstream("audit", "store", str(store))
    assert ran.code == 1
    assert b"of the ledger" in ran.err


def test_a_signed_head_is_compared(tmp_path: Path) -> None:
    store = run(tmp_path, *ROUND_ROBIN)
    key, head = tmp_path / "signing.key", tmp_path / "head.json"
    assert meanstream("secret", "new", "--signing", str(key)).code == 0
    sign = ("ledger", "sign", "--store", str(store), "--signing-key", str(key), "--to", str(head))
    assert meanstream(*sign).code == 0
    signed = ("--signature", str(head), "--signer", f"{key}.pub")
    ran = meanstream("audit", "store", str(store), "--json", *signed)
    assert ran.code == 0
    assert ran.json["notes"][0].endswith("; the first 200 match the signature")
    spoiled = (
        head.read_text().replace('"rows": 200', '"rows": 199').replace('"rows":200', '"rows":199')
    )
    head.write_text(spoiled)
    assert meanstream("audit", "store", str(store), *signed).code == 1


def test_what_cannot_be_audited_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(store: Path, *options: str) -> str:
        return meanstream("audit", "store", str(store), *options).message

    released = run(tmp_path, *ROUND_ROBIN, "--variance", "released")
    assert refused(released) == (
        "variance must not be released in an audited store, whose ledger lacks the noise of sums "
        "of squares, got 'released'"
    )
    (tmp_path / "site").mkdir()
    site = run_site(tmp_path / "site")
    monkeypatch.setenv("MEANSTREAM_SECRET", OTHER_SECRET)
    assert refused(site).startswith("secret must be the one that the store began")
    monkeypatch.setenv("MEANSTREAM_SECRET", "")
    assert refused(site).startswith("secret must be 128 random bits or more")
    monkeypatch.delenv("MEANSTREAM_SECRET")
    assert audited(site).code == 0
    rounds = tmp_path / "rounds.db"
    Store.open(rounds, settings={"side": "users"}, secret=SECRET.encode()).close()
    assert refused(rounds) == (
        "store must be one of agents or of agents that query each other or of a federated site, "
        f"got {str(rounds)!r}, one of users in rounds"
    )


def test_no_secret_of_agents_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another secret in the environment changes nothing."""
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path).code == 0
    monkeypatch.setenv("MEANSTREAM_SECRET", OTHER_SECRET)
    assert audited(tmp_path / "state.db").code == 0


@pytest.mark.parametrize(
    ("counter", "noise"),
    [
        *(("pm1", noise) for noise in ("laplace", "staircase", "gaussian")),
        *(("pm2", noise) for noise in ("laplace", "staircase")),
        ("toeplitz", "gaussian"),
    ],
)
def test_the_spend_of_a_pair_grows_with_its_releases_up_to_the_claim(
    counter: str, noise: str
) -> None:
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, counter=counter, horizon=31, noise=noise,
        spread_share=0,
    )  # fmt: skip
    spent = [spent_by_pair(settings, releases) for releases in range(32)]
    assert spent[0] == 0.0
    assert np.all(np.diff(spent) >= -NUMERIC)
    assert spent[-1] == pytest.approx(1.0, abs=2e-3)
    assert max(spent) <= 1.0 + NUMERIC
    assert (spent[1] > 0.999) == (counter == "pm1")
