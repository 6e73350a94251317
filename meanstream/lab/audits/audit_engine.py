"""`meanstream audit engine`.

A whole run with canaries, through the class that makes releases or through the engine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.lab.audits.audit_rows import thrown_away_secret
from meanstream.lab.audits.audited_run import deaths, other_input, read_outputs, run_canary_engine
from meanstream.lab.evidence.agents_audit import CHUNK, CanaryEvidence, run_canaries
from meanstream.lab.evidence.audit_record import AuditRow, require_auditable
from meanstream.lab.evidence.canaries import Canaries, compressed
from meanstream.lab.evidence.one_run import LEAST_CANARIES
from meanstream.operators.validation import require, require_least
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.streaming.crash import no_crash
from meanstream.streaming.long_work import tracked_work
from meanstream.streaming.store.secret_source import noise_from_secret

if TYPE_CHECKING:
    import numpy as np

    from meanstream.lab.audits.audit_options import AuditEngineOptions
    from meanstream.operators.agents.agents_settings import AgentsSettings

DEPLOYMENT = "audit"
CANARIES = {"agents": 100_000, "engine": 2_000}
AGAIN = 2_000
"""Agents that run a second time, in another life and in another deployment."""


def audit_engine_rows(options: AuditEngineOptions) -> tuple[Iterator[AuditRow], list[str]]:
    """Check the options; give what an audit finds, and what is to be known of it."""
    import numpy as np

    with refusing_options():
        way = options.way
        settings = options.settings()
        require_auditable(settings.epsilon)
        agents = CANARIES[way] if options.canaries is None else options.canaries
        require_least(2 * LEAST_CANARIES, canaries=agents)
        require(options.seed is None or options.seed >= 0, "seed", "be at least 0", options.seed)
        require_least(0, kills=options.kills)

        require(
            options.runner is None,
            "runner",
            "be left out: Beam runs what --through agents audits",
            options.runner,
        )
        engine_options = options.engine_options()
        audited = compressed(settings, settings.name or DEPLOYMENT)
        canaries = Canaries(audited, agents, alone=way == "agents")
        turns = canaries.seconds * 2
        require(options.kills <= 8 * turns, "kills", f"be at most {8 * turns}", options.kills)

    rng = np.random.default_rng(options.seed)
    of_all = (
        ""
        if canaries.releases == settings.most_releases
        else f", the first of {_number_of(settings)}"
    )
    what = f"{canaries.number} of {agents:,} agents' samples each, {canaries.releases} releases jointly{of_all}"
    evidence = CanaryEvidence(canaries, what)

    notes = [
        "the schedule is compressed to a release per second: the noise depends on the number of releases alone",
        "a violation is reported if chance explains it once in a million audits",
        "all draws of a release are compared across kinds, and with their declared law; sums with their exact low bits",
    ]

    if settings.remembers.forgets:
        notes.append(
            "sums do not restart after a change here; later releases follow from the audited sums"
        )

    secret = thrown_away_secret(options.seed)
    if way == "agents":
        return _through_agents(evidence, rng, secret.encode()), notes
    notes.append("store and secret are temporary")

    if settings.vote is not None:
        notes.append("agents of one host vote together; --through agents audits votes")

    return _through_engine(evidence, rng, secret, engine_options, options.kills), notes


def _number_of(settings: AgentsSettings) -> str:
    if settings.most_releases is None:
        return "releases without end"
    return f"{settings.most_releases:,}"


def _coins(rng: np.random.Generator, n: int, canaries: Canaries) -> Any:
    return rng.integers(0, 2, (n, canaries.number))


def _through_agents(
    evidence: CanaryEvidence, rng: np.random.Generator, secret: bytes
) -> Iterator[AuditRow]:
    canaries = evidence.canaries
    noise = noise_from_secret(secret, canaries.settings.name)
    for start in tracked_work(range(0, canaries.agents, CHUNK), "canaries"):
        n = min(CHUNK, canaries.agents - start)
        coins = _coins(rng, n, canaries)
        outputs = run_canaries(canaries, noise, coins, start)
        evidence.take(outputs, coins)

        if start == 0:
            few = min(n, AGAIN)
            others = _coins(rng, few, canaries)
            beside = outputs.chosen(slice(few))
            same = coins[:few]

            again = other_input(canaries)
            released = run_canaries(again, noise, others)
            evidence.take_again(
                "another input", beside, same, again=again, other=released, others=others
            )
            # Settings and samples are the same: what differs is the name in the key, and nothing
            # else.
            released = run_canaries(
                canaries, noise_from_secret(secret, f"{canaries.settings.name}-2"), same
            )
            evidence.take_again(
                "another deployment", beside, same, again=canaries, other=released, others=same
            )

    yield from evidence.rows()


def _through_engine(
    evidence: CanaryEvidence, rng: np.random.Generator, secret: str, options: Any, kills: int
) -> Iterator[AuditRow]:
    canaries = evidence.canaries
    n = canaries.agents
    few = min(canaries.agents, AGAIN)
    coins = _coins(rng, n, canaries)
    others = _coins(rng, few, canaries)
    crash = deaths(rng, kills, canaries.seconds)

    with tempfile.TemporaryDirectory(prefix="meanstream-audit-") as name:
        folder = Path(name)
        seen, died = run_canary_engine(
            folder / "first", canaries, coins, secret=secret, options=options, crash=crash
        )

        # The store is lost, the secret is not: what was released is released again, and nothing
        # else.
        run_canary_engine(
            folder / "lost",
            canaries,
            coins,
            secret=secret,
            options=options,
            crash=no_crash,
            observer=seen,
        )
        evidence.what += f", {died} deaths, a replay into a lost store"

        outputs = read_outputs(canaries, seen, n)
        evidence.take(outputs, coins)
        beside = outputs.chosen(slice(few))
        same = coins[:few]
        renamed = replace(
            canaries, settings=compressed(canaries.settings, f"{canaries.settings.name}-2")
        )

        for difference, again, theirs in (
            ("another input", other_input(canaries), others),
            ("another deployment", renamed, same),
        ):
            seen_again, _ = run_canary_engine(
                folder / difference, again, theirs, secret=secret, options=options, crash=no_crash
            )
            evidence.take_again(
                difference,
                beside,
                same,
                again=again,
                other=read_outputs(again, seen_again, few),
                others=theirs,
            )

    yield from evidence.rows()
