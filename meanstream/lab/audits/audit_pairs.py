"""`meanstream audit store` of agents that query each other: the ledger, and draws from the key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from meanstream.lab.audits.audit_rows import (
    NOT_MADE_AGAIN,
    decoded_blocks,
    fault_of_rejects,
    found_secret,
)
from meanstream.lab.evidence.audit_record import NUMERIC, AuditRow
from meanstream.lab.evidence.counters_audit import counter_columns
from meanstream.lab.evidence.pairwise_noise import PairColumns, PairwiseNoise
from meanstream.lab.evidence.repeated_draws import KEYED_ASSUMPTION, RepeatedDraws
from meanstream.lab.papers.colme.pairwise_stream import pair_words
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_checks import LARGEST_COUNT, PossibleReleases
from meanstream.operators.noise.distributions import LaplaceNoise, StaircaseNoise
from meanstream.operators.noise.draw_owners import PAIR_SUMS
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require
from meanstream.streaming.agents.pairwise.pairwise_engine import KINDS, pair_release_ids
from meanstream.streaming.store.ledger_reader import LedgerBlock
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.state_store import Store

_NOT_OF_STREAMS = ("side", "partners", "schedule", "weights", "variance", "stddev", "significance")
_ROUNDING = (0, -1, 1)
"""Of a sum with noise: how far the exact sum may lie from the difference of both, rounded."""
_MOST_COLUMNS = 128
"""Releases of a pair over which the loss of a sample is added up."""


_Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**47 - 1)]


class _Said(msgspec.Struct):
    release_id: str
    agent: str
    reader: str
    index: _Count
    n: _Count
    total: _Whole
    mean: float
    noise_variance: float
    epsilon: float
    delta: float
    mode: str


_SAID = msgspec.json.Decoder(_Said)


@dataclass(frozen=True)
class PairsLedger:
    """Private: what agents of a store released to their readers, and what is wrong with the rows.

    `charged` is how many releases of each agent the saved state has; `pairs` how many of each pair,
    in no order.
    """

    names: list[str]
    columns: PairColumns
    wrong: Counter[str]
    charged: Ints
    pairs: Ints


def audit_pairs_rows(store: Path, saved: dict[str, Any]) -> tuple[Iterator[AuditRow], list[str]]:
    """Give what the ledger of a store of pairs proves, and what each draw shows.

    Draws are made again where the secret of the store is found.

    Raises
    ------
    ValueError
        If the store releases variances: the noise of sums of squares is in no row of the ledger.
    """
    settings = pairs_settings(saved)
    require(
        settings.variance != "released",
        "variance",
        "not be released in an audited store, whose ledger lacks the noise of sums of squares",
        settings.variance,
    )

    secret = found_secret(store)
    noise = None if secret is None else noise_from_secret(secret, settings.name)

    with closing(Store.read(store)) as opened:
        ledger = read_pairs_ledger(opened, settings)

    pair = numbered_pairs(ledger.columns)
    _check_spent(ledger, pair)
    _check_possible(ledger, settings.means, pair)

    notes = _notes(ledger, settings, pair)
    if noise is None:
        notes.append(NOT_MADE_AGAIN)
    if saved["partners"] is not None:
        notes.append("whether a reader is one of --partners is not checked: a store keeps a digest")

    return _rows(ledger, settings, noise), notes


def pairs_settings(saved: dict[str, Any]) -> PairwiseStreamSettings:
    """Read the settings of a store of pairs, whose partners are a digest."""
    own = {
        name: value
        for name, value in saved.items()
        if name not in _NOT_OF_STREAMS and value is not None
    }

    return PairwiseStreamSettings(
        release=AgentsSettings(**own, spread_share=0.0),
        schedule=saved["schedule"],
        weights=saved["weights"],
        variance=saved["variance"],
        stddev=saved["stddev"],
        significance=saved["significance"],
    )


def read_pairs_ledger(store: Store, settings: PairwiseStreamSettings) -> PairsLedger:
    """Read all rows of a ledger of pairs; count those that do not say what their owner could."""
    names = store.agents()
    number = {name: agent for agent, name in enumerate(names)}
    wrong: Counter[str] = Counter()
    parts: list[PairColumns] = []

    for block, said in decoded_blocks(store, _SAID.decode):
        columns = _columns_of(block, said, number)
        wrong.update(_wrong_words(said, columns, names, settings.release))

        # An unknown reader has no pair: it is counted, and is in no comparison.
        parts.append(columns.part(columns.reader >= 0))

    return PairsLedger(
        names=names,
        columns=PairColumns.joined(parts),
        wrong=wrong,
        charged=_charged(store, len(names)),
        pairs=_indexes_of_pairs(store),
    )


def _columns_of(block: LedgerBlock, said: list[_Said], number: dict[str, int]) -> PairColumns:
    return PairColumns(
        agent=np.array(block.rows.agent, np.int64),
        reader=np.array([number.get(row.reader, -1) for row in said], np.int64),
        index=np.array([row.index for row in said], np.int64),
        count=np.array([row.n for row in said], np.int64),
        total=np.array([row.total for row in said], np.int64),
        mean=np.array([row.mean for row in said], np.float64),
        noise_variance=np.array([row.noise_variance for row in said], np.float64),
        version=np.array(block.rows.input_version, np.int64),
    )


def _wrong_words(
    said: list[_Said], columns: PairColumns, names: list[str], release: AgentsSettings
) -> Iterator[str]:
    """Give a reason for each row whose names, id or promise are not its owner's."""
    agent = columns.agent.tolist()
    reader = columns.reader.tolist()
    ids = pair_release_ids(names, agent, reader, columns.index.tolist(), deployment=release.name)
    promise = (release.epsilon, release.delta, release.mode)

    for row, release_id, owner, partner in zip(said, ids, agent, reader, strict=True):
        if partner < 0 or partner == owner:
            yield "wrong_reader"
        elif (row.release_id, row.agent) != (release_id, names[owner]):
            yield "wrong_id"
        elif (row.epsilon, row.delta, row.mode) != promise:
            yield "other_promise"


def _charged(store: Store, agents: int) -> Ints:
    """Give how many releases of each agent the saved state has."""
    charged = np.zeros(agents, np.int64)
    for _, columns in store.chunks(KINDS[0]):
        number = columns["agent"] - 1
        seen = number >= 0
        charged[number[seen]] = columns["released"][seen]

    return charged


def _indexes_of_pairs(store: Store) -> Ints:
    """Give the number of releases of each pair, as the saved state has it, sorted."""
    indexes = [np.zeros(0, np.int64)]
    indexes += [columns["pair index"].astype(np.int64) for _, columns in store.chunks(KINDS[1])]
    index = np.concatenate(indexes)
    return np.sort(index[index > 0])


def numbered_pairs(columns: PairColumns) -> Ints:
    """Number the ordered pairs of an agent and a reader."""
    agent_and_reader = np.stack([columns.agent, columns.reader])
    return np.unique(agent_and_reader, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _check_spent(ledger: PairsLedger, pair: Ints) -> None:
    """Count what does not add up: numbers of a pair, releases of an agent, and the saved state."""
    columns = ledger.columns
    order = np.argsort(pair, kind="stable")
    begins = np.diff(pair[order], prepend=-1) != 0
    turn = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1] + 1
    ledger.wrong["out_of_turn"] += int(np.count_nonzero(columns.index[order] != turn))

    # The state says which number comes next: behind the ledger it would give one out twice.
    spent = np.bincount(columns.agent, minlength=len(ledger.names))
    of_pairs = np.sort(np.bincount(pair))
    ledger.wrong["other_spend"] += int(np.count_nonzero(spent != ledger.charged))
    ledger.wrong["other_pairs"] += int(not np.array_equal(of_pairs, ledger.pairs))


def _check_possible(ledger: PairsLedger, means: AgentsSettings, pair: Ints) -> None:
    """Count the releases that the settings do not allow."""
    # A query makes a release due, so that nothing bounds how many samples it may have.
    possible = PossibleReleases(replace(means, schedule="every:1s"), LARGEST_COUNT)
    reasons = possible.reasons(ledger.columns.of_pairs(pair))
    ledger.wrong.update(reason for reason in reasons.tolist() if reason)


def _rows(
    ledger: PairsLedger, settings: PairwiseStreamSettings, noise: KeyedNoise | None
) -> Iterator[AuditRow]:
    law = PairwiseNoise(settings.means)
    law.take_pairs(ledger.columns)
    row = law.row("ledger")
    faults = (fault_of_rejects(ledger.wrong), row.fault, law.fault_of_equal_inputs())
    yield replace(row, fault="; ".join(filter(None, faults)) or None)

    if noise is None:
        return

    draws = repeated_pair_draws(ledger.columns, ledger.names, settings, noise)
    spent = spent_by_pair(settings.means, int(ledger.columns.index.max(initial=0)))
    yield AuditRow(
        name="ledger.draws",
        claimed=settings.release.epsilon,
        delta=0.0 if settings.means.pure else settings.release.delta,
        proved=spent,
        ceiling=spent,
        method=f"{draws.method}; proved is what the releases of one pair have spent",
        assumption=KEYED_ASSUMPTION,
        fault=draws.fault(),
    )


def spent_by_pair(means: AgentsSettings, releases: int) -> float:
    """Give the exact loss of a sample towards one reader, after so many releases to it.

    Examples
    --------
    >>> settings = AgentsSettings(
    ...     lower=0, upper=1, epsilon=1, counter="pm2", horizon=7, noise="laplace", spread_share=0)
    >>> [round(spent_by_pair(settings, releases), 3) for releases in (0, 1, 7)]
    [0.0, 0.333, 1.0]
    """
    if not releases:
        return 0.0
    seen = min(releases, _MOST_COLUMNS, means.horizon)
    columns = np.abs(counter_columns(means.mechanism, seen))
    law = means.fresh

    # By the noise itself, which a classical calibration makes larger than it has to be.
    if isinstance(law, StaircaseNoise):
        return float(law.epsilon * np.ceil(columns - NUMERIC).sum(axis=0).max())
    if isinstance(law, LaplaceNoise):
        return float(means.grid.span / law.scale * columns.sum(axis=0).max())
    longest = float(np.sqrt((columns**2).sum(axis=0).max()))
    return float(group_epsilon(means.grid.span * longest / law.stddev, means.delta))


def repeated_pair_draws(
    columns: PairColumns,
    names: list[str],
    settings: PairwiseStreamSettings,
    noise: KeyedNoise,
) -> RepeatedDraws:
    """Make the draw of each release again, and see whether the release is an exact sum with it."""
    means = settings.means
    keyed = noise.derived("pairwise stream", settings.key())
    agent_and_reader = np.stack([columns.agent, columns.reader])
    pairs, pair = np.unique(agent_and_reader, axis=1, return_inverse=True)
    pair = pair.reshape(-1)

    # The owner of a draw is the ordered pair, by name.
    agent, reader = ([names[number] for number in row] for row in pairs.tolist())
    words = pair_words(agent, reader)[pair]
    ids = NoiseIds(words, columns.index, columns.version.view(np.uint64))
    bits = keyed.bits(ids, PAIR_SUMS.at())
    drawn = means.fresh.sample(bits)

    added = _noise_of_sums(pair, columns.index, drawn, means)
    exact, matches = _exact_sums(columns, added, keyed, means.grid.span)
    draws = RepeatedDraws()
    draws.take(means.fresh, bits, drawn, matches)
    draws.impossible = _impossible_sums(columns, pair, exact, matches, means.grid.span)

    return draws


def _exact_sums(
    columns: PairColumns, added: Floats, keyed: KeyedNoise, span: int
) -> tuple[Ints, Bools]:
    """Take the noise off each sum; say where the digest in the ledger is that of what is left."""
    middle = columns.count * (span // 2)
    version = columns.version.view(np.uint64)
    exact = np.zeros(len(added), np.int64)
    matches = np.zeros(len(added), np.bool_)

    # A sum is the exact one, from the middle of the bounds, with noise, rounded.
    for step in _ROUNDING:
        centered = columns.total - middle - np.rint(added).astype(np.int64) + step
        fits = np.rint(centered + added).astype(np.int64) == columns.total - middle
        fits &= keyed.version_of(columns.count, centered + middle) == version
        exact[fits] = (centered + middle)[fits]
        matches |= fits

    return exact, matches


def _noise_of_sums(pair: Ints, index: Ints, drawn: Floats, means: AgentsSettings) -> Floats:
    """Give what the counters of all pairs make of their draws, release by release."""
    counter = means.mechanism
    state = counter.init(int(pair.max(initial=-1)) + 1)
    added = np.zeros(len(drawn))
    order = np.argsort(index, kind="stable")
    number, begin = np.unique(index[order], return_index=True)
    end = np.searchsorted(index[order], number, side="right")

    # A number that a ledger repeats in one pair was counted as a fault; the counter sees it once.
    for release, rows in zip(number.tolist(), map(slice, begin, end), strict=True):
        if 1 <= release <= counter.horizon:
            each, where = np.unique(pair[order[rows]], return_index=True)
            turn = np.full(len(each), release)
            row = order[rows][where]
            added[row] = counter.step(state, each, turn, drawn[row])

    return added


def _impossible_sums(columns: PairColumns, pair: Ints, exact: Ints, known: Bools, span: int) -> int:
    """Count exact sums that grow by more, or less, than their new samples can have."""
    order = np.lexsort((columns.index, pair))
    same = np.diff(pair[order], prepend=-1) == 0
    grown = np.where(same, np.diff(exact[order], prepend=0), exact[order])
    samples = np.where(same, np.diff(columns.count[order], prepend=0), columns.count[order])
    both_known = known[order] & (~same | np.append(False, known[order][:-1]))

    return int(np.count_nonzero(both_known & ((grown < 0) | (grown > span * samples))))


def _notes(ledger: PairsLedger, settings: PairwiseStreamSettings, pair: Ints) -> list[str]:
    """Say what was spent; for the operator, as the ledger is."""
    columns = ledger.columns
    number = np.bincount(pair) if len(pair) else np.zeros(1, np.int64)
    pairs = np.unique(np.stack([columns.agent, columns.reader]), axis=1)
    readers = int(np.bincount(pairs[0]).max(initial=0))
    pooled = settings.coalition_epsilon(max(readers, 1))

    spent = (
        f"{len(ledger.names):,} agents, {pairs.shape[1]:,} pairs, {len(pair):,} releases, "
        f"at most {int(number.max()):,} of one agent to one reader "
        f"(the budget is {settings.means.horizon:,})"
    )
    coalition = (
        f"at most {readers:,} readers of one agent; all of them together have epsilon {pooled:.2f} "
        f"of a sample"
    )
    operator = "how many releases there are may depend on values: this audit is the operator's"

    return [spent, coalition, operator]
