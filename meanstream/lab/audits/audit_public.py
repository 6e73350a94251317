"""`meanstream audit store` and `audit topic`: what anyone can check who reads releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.lab.audits.audit_pairs import audit_pairs_rows
from meanstream.lab.audits.audit_rows import SAYS, fault_of_rejects
from meanstream.lab.audits.audit_site import audit_site_rows
from meanstream.lab.evidence.noise_law import NoiseLaw
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.pipelines.commands.run.opening import opening_stack
from meanstream.pipelines.commands.run.run_collaborate import open_received_releases
from meanstream.pipelines.commands.state.ledger_checks import ledger_signature
from meanstream.pipelines.options.option_errors import BadOption, RunFailed, refusing_options
from meanstream.streaming.agents.agents_releases import releases_of_ledger
from meanstream.streaming.store.database import DamagedStoreError, StoreError
from meanstream.streaming.store.deployment_store import (
    saved_deployment_settings,
)
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import OtherLedgerError, audit_ledger
from meanstream.streaming.store.store_identity import (
    OF_AGENTS,
    OF_PAIRS,
    OF_SITE,
    require_store_kind,
    store_kind,
)

if TYPE_CHECKING:
    from meanstream.lab.audits.audit_options import AuditTopicOptions
    from meanstream.lab.evidence.audit_record import AuditRow
    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.operators.records import Ints


def audit_topic_rows(options: AuditTopicOptions) -> tuple[Iterator[AuditRow], list[str]]:
    """Read all releases of a place; give what they prove."""
    with refusing_options():
        settings = options.settings()
        if options.address is None:
            raise BadOption("address must be given")
        releases = open_received_releases(options.address, PossibleReleases(settings))

    releases.received.remember_all()
    law = NoiseLaw(settings)
    spent = _no_agents()
    with opening_stack() as (opened, stop):
        opened.callback(releases.close)
        while not releases.caught_up and not stop():
            columns = releases.poll().columns
            law.take(columns)
            spent = _more(spent, columns.agent, columns.index)

    return _judged(law, "releases", releases.rejected), _spent(settings, spent, releases.rejected)


def audit_store_rows(
    store: Path,
    signature: Path | None = None,
    signer: Path | None = None,
) -> tuple[Iterator[AuditRow], list[str]]:
    """Compare every row of a ledger with its chain; give what its releases prove.

    The secret is read only of stores whose ledger is their operator's.
    """
    noted = (
        None if (signature, signer) == (None, None) else ledger_signature(store, signature, signer)
    )
    try:
        kind, saved = _kind_of_store(store)
        report = audit_ledger(store, noted)
        with refusing_options():
            rows, notes = _AUDITS[kind](store, saved)
    except (DamagedStoreError, OtherLedgerError) as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None

    chain = f"every one of {report.rows:,} rows fits the chain, head {report.head.hex()}"
    if noted is not None:
        chain += f"; the first {noted.rows:,} match the signature"

    return rows, [chain, *notes]


def _kind_of_store(store: Path) -> tuple[str, dict[str, Any]]:
    """Give the kind of a store and the settings that it began with; refuse kinds without audit."""
    with closing(Store.read(store)) as opened:
        saved = opened.begun_settings()

    require_store_kind(store, saved, *_AUDITS)
    return store_kind(saved), saved


def _audit_agents_rows(store: Path, saved: dict[str, Any]) -> tuple[Iterator[AuditRow], list[str]]:
    """Give what the ledger of agents proves to everyone who reads their releases."""
    settings = saved_deployment_settings(saved)
    law = NoiseLaw(settings)
    possible = PossibleReleases(settings)
    wrong: Counter[str] = Counter()
    spent = _no_agents()

    with closing(Store.read(store)) as opened:
        for block in releases_of_ledger(opened.ledger):
            law.take(block)
            wrong.update(reason for reason in possible.reasons(block).tolist() if reason)
            spent = _more(spent, block.agent, block.index)

    return _judged(law, "ledger", wrong), _spent(settings, spent, wrong)


_AUDITS: dict[str, Callable[..., tuple[Iterator[AuditRow], list[str]]]] = {
    OF_AGENTS: _audit_agents_rows,
    OF_PAIRS: audit_pairs_rows,
    OF_SITE: audit_site_rows,
}
"""Of each kind of store that has an audit."""


def _judged(law: NoiseLaw, name: str, rejected: Counter[str]) -> Iterator[AuditRow]:
    row = law.row(name)
    faults = (fault_of_rejects(rejected), row.fault)
    yield replace(row, fault="; ".join(filter(None, faults)) or None)
    yield from law.rows_of_counts(name)


def _no_agents() -> Ints:
    import numpy as np

    return np.zeros(0, np.int64)


def _more(spent: Ints, agent: Ints, index: Ints) -> Ints:
    import numpy as np

    greatest = np.zeros(max(len(spent), int(agent.max(initial=-1)) + 1), np.int64)
    greatest[: len(spent)] = spent
    np.maximum.at(greatest, agent, index)
    return greatest


def _budget(settings: AgentsSettings) -> str:
    if settings.most_releases is None:
        return "there is no end"
    return f"the budget is {settings.horizon:,}"


def _spent(settings: AgentsSettings, spent: Ints, rejected: Counter[str]) -> list[str]:
    others = {reason: n for reason, n in sorted(rejected.items()) if reason not in SAYS}
    left_out = ", ".join(f"{n:,} {reason}" for reason, n in others.items()) or "none"
    return [
        f"{len(spent):,} agents, {int(spent.sum()):,} releases, at most {int(spent.max(initial=0)):,} of one agent "
        f"({_budget(settings)}); lines left out: {left_out}",
        "a scale 5 % too small is seen from 100,000 releases; a larger one beyond what samples explain",
        "single draws are compared across kinds, bins, releases and agents, and with their declared law; "
        "chance alone is blamed once in a million rows",
    ]
