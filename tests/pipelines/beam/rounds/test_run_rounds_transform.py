"""Bytes between the steps, sums of users joined in any order, options that are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import typecoders

from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agent_transforms import agent_batch
from meanstream.pipelines.beam.beam_runners import prism_runner_binary, runner_arguments
from meanstream.pipelines.beam.element_types.beam_samples import SampleColumnsCoder
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.rounds.round_transforms import (
    AnswerReports,
    ReportRounds,
    RunRounds,
    SummarizeUsers,
    sample_batch,
)
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ForRound,
    ReportBatch,
    UserBatch,
    UserSamples,
    join_user_records,
    record_user_words,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.store.state_snapshot import CorruptedSnapshotError
from tests.pipelines.beam.support.collecting import run
from tests.streaming.support.rounds_world import SECRET, rounds_settings, samples

WINDOW = Window(-5, 10**15)
NAMES = ["a", "Zoë", "", "user 4"]


def users(names: list[str] = NAMES, seed: int = 1) -> UserBatch:
    rng = np.random.default_rng(seed)
    n = len(names)
    sums = UserSums(
        user=np.arange(n), count=rng.integers(1, 9, n), total=rng.integers(0, 2**40, n),
        first_time=rng.integers(-5, 5, n), first=rng.integers(0, 2**20, n),
    )  # fmt: skip
    words = keyed_owner_words(names)
    return UserBatch(
        window=WINDOW, names=pa.array(names, pa.large_string()), words=words, sums=sums
    )


def vectors() -> UserBatch:
    """Users with a row of sums each."""
    one = users()
    rows = {
        name: np.random.default_rng(3).integers(0, 2**40, (len(one), 3))
        for name in ("total", "first")
    }
    return replace(one, sums=replace(one.sums, **rows))


def categories(most: int = 9) -> UserBatch:
    """Users with small counts of categories."""
    one = users()
    counts = (
        np.random.default_rng(3).integers(0, most, (len(one), 3)).astype(np.min_scalar_type(most))
    )
    return replace(one, sums=replace(one.sums, total=counts))


def plain(value: Any) -> Any:
    """Columns as lists, to compare."""
    if isinstance(value, UserBatch):
        columns = {name: column.tolist() for name, column in value.sums.columns().items()}
        return (value.window, value.names.to_pylist(), value.words.tolist(), columns)
    if isinstance(value, UserSamples):
        columns = {
            name: getattr(value, name).tolist()
            for name in ("words", "user", "value", "time", "key", "position")
        }
        return (value.window, value.names.to_pylist(), columns)
    if isinstance(value, ReportBatch):
        return (
            value.window,
            value.stage,
            value.users,
            value.names.to_pylist(),
            value.reports.tolist(),
        )
    return value


def with_ids(n: int = 5, width: int = 0) -> UserSamples:
    """Samples that have ids, of two users, or of nobody."""
    rng, names = np.random.default_rng(4), NAMES[:2] if n else []
    return UserSamples(
        window=WINDOW, names=pa.array(names, pa.large_string()), words=keyed_owner_words(names), user=np.arange(n) % 2,
        value=rng.normal(size=(n, width) if width else n), time=rng.normal(0, 1e9, n),
        key=rng.integers(1, 2**64, n, np.uint64), position=rng.integers(-(2**62), 2**62, n),
    )  # fmt: skip


def reports(n: int = 3, width: int = 2) -> ReportBatch:
    rows = np.random.default_rng(2).integers(-(2**62), 2**62, (n, width))
    return ReportBatch(
        window=WINDOW, stage=2, users=40, names=pa.array(NAMES[:n], pa.large_string()), reports=rows
    )


@pytest.mark.parametrize(
    "value",
    [
        users(),
        users([]),
        vectors(),
        categories(),
        categories(70_000),
        users().take(np.array([1, 3])),
        with_ids(),
        with_ids(0),
        with_ids(4, 3),
        reports(),
        reports(0, 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_are_compact_versioned_and_hold_everything(value: Any) -> None:
    coder = typecoders.registry.get_coder(type(value))
    assert type(coder) is ColumnsCoder
    encoded = coder.encode(value)
    assert b"meanstream" not in encoded  # the name of a class: a pickle
    assert plain(coder.decode(encoded)) == plain(value)
    assert coder.encode(coder.decode(encoded)) == encoded
    assert coder.is_deterministic()
    with pytest.raises(ValueError, match="must be of version 2"):
        coder.decode(encoded.replace(b'[2,"', b'[3,"', 1))
    if isinstance(value, (UserBatch, UserSamples)):
        anyone = ColumnsCoder(ForRound)
        assert plain(anyone.decode(anyone.encode(value))) == plain(value)
    if isinstance(value, UserBatch) and value.sums.total.ndim == 1:
        text = len("".join(value.names.to_pylist()).encode())
        assert len(encoded) < 1000 + 60 * len(value) + text


def test_a_kind_of_data_is_not_read_as_another() -> None:
    for kind in (UserBatch, ForRound):
        with pytest.raises(DamagedBytesError, match="must be of version 2 and their kind"):
            ColumnsCoder(kind).decode(ColumnsCoder(ReportBatch).encode(reports()))
        with pytest.raises(DamagedBytesError, match=r"^data must be .*, got others$"):
            ColumnsCoder(kind).decode(ColumnsCoder(kind).encode(reports()))
        with pytest.raises(CorruptedSnapshotError):
            ColumnsCoder(kind).decode(b"")
    with pytest.raises(ValueError, match="ledger of a shard must be of version 1, got 9"):
        SpendLedger(bytes([9]) + bytes(8))


def test_samples_as_bytes() -> None:
    batch = sample_batch(["b", "a", "b"], [1.0, -2.5, 1e300], [0.25, 1e9, 2.0])
    coder = typecoders.registry.get_coder(SampleColumns)
    assert isinstance(coder, SampleColumnsCoder)
    some = coder.decode(coder.encode(batch.take(np.array([1, 2]))))
    assert [some.names[place] for place in some.agent.tolist()] == ["a", "b"]
    assert (some.value.tolist(), some.time.tolist()) == ([-2.5, 1e300], [1e9, 2.0])
    assert some.key is None
    keyed = agent_batch(["b", "a"], [1.0, 2.0], [0.0, 1.0], ids=["x", "y"])
    again = coder.decode(coder.encode(keyed))
    assert keyed.key is not None
    assert again.key is not None
    assert (again.key.tolist(), again.position.tolist()) == (keyed.key.tolist(), [1, 2])
    vectors = sample_batch(["b", "a"], [(1.0, 2.0), (3.0, 4.0)], [0.0, 1.0])
    assert coder.decode(coder.encode(vectors)).value.tolist() == [[3.0, 4.0], [1.0, 2.0]][::-1]
    persons = replace(keyed, person=np.array([7, 2**63], np.uint64))
    assert coder.decode(coder.encode(persons)).person.tolist() == [7, 2**63]
    assert len(coder.encode(replace(batch, names=[*batch.names, *map(str, range(1000))]))) == len(
        coder.encode(batch)
    )


@pytest.mark.parametrize("agent", [[0, 2], [-1, 0], [0]])
def test_a_batch_that_is_not_whole_travels_to_where_it_is_rejected(agent: list[int]) -> None:
    coder = SampleColumnsCoder()
    batch = replace(sample_batch(["b", "a"], [1.0, 2.0], [0.0, 1.0]), agent=np.array(agent))
    again = coder.decode(coder.encode(batch))
    assert (again.agent.tolist(), again.names[: max(agent) + 1]) == (
        agent,
        batch.names[: max(agent) + 1],
    )
    assert len(again.value) == 2


def test_estimators_with_a_trusted_curator_have_no_two_sides() -> None:
    central = [name for name in ESTIMATORS if estimator_class(name).trust == "central"]
    assert central
    for name in central:
        settings = rounds_settings(estimator=name, users=1000)
        for side in (
            lambda: ReportRounds(settings),  # noqa: B023 - called at once
            lambda: AnswerReports(settings),  # noqa: B023
        ):
            with pytest.raises(
                ValueError,
                match="estimator must be local here: a trusted curator sees every sample",
            ):
                side()


def test_users_are_joined_in_any_order() -> None:
    batches = [
        users(seed=1),
        users(["b", "a"], seed=2),
        users([], seed=3),
        users(["user 4", "b"], seed=4),
    ]
    joined = {
        repr(plain(join_user_records(list(order)))) for order in itertools.permutations(batches)
    }
    assert len(joined) == 1
    stepwise = join_user_records([join_user_records(batches[:2]), join_user_records(batches[2:])])
    assert repr(plain(stepwise)) in joined
    whole = join_user_records(batches)
    assert sorted(whole.names.to_pylist()) == sorted({*NAMES, "b"})
    assert whole.sums.count.sum() == sum(int(batch.sums.count.sum()) for batch in batches)


def test_a_batch_falls_apart_by_shard_and_is_whole_again() -> None:
    whole = join_user_records([users([f"user {n}" for n in range(200)])])
    parts = dict(whole.by_shard(8))
    assert len(parts) == 8
    for shard, part in parts.items():
        assert set((part.words[:, 1] % np.uint64(8)).tolist()) == {shard}
        assert join_user_records([part]) is part  # in the order of the hashes already
        assert keyed_owner_words(part.names.to_pylist()).tolist() == part.words.tolist()
    assert plain(join_user_records(list(parts.values()))) == plain(whole)


def test_users_whose_hashes_agree_in_one_half_are_two() -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(0, 4, (200, 2)).astype(np.uint64)
    known, code = record_user_words(words)
    assert len(known) == len({tuple(row) for row in words.tolist()}) == 16
    assert np.array_equal(words[known][code], words)


def test_sums_of_users_are_those_of_their_samples() -> None:
    stream = samples()
    batches, _ = run(stream, SummarizeUsers(rounds_settings(window="4d")))
    settings = rounds_settings()
    found = {
        name: (int(count), int(total))
        for _, batch in batches
        for name, count, total in zip(
            batch.names.to_pylist(), batch.sums.count, batch.sums.total, strict=True
        )
    }  # fmt: skip
    for name in {user for user, _, _ in stream}:
        mine = [value for user, value, _ in stream if user == name]
        assert found[name] == (len(mine), int(settings.grid.encode(np.array(mine)).sum()))


def test_settings_are_given_once() -> None:
    with pytest.raises(ValueError, match="settings must be given once, got 'epsilon'"):
        RunRounds(rounds_settings(), epsilon=1.0)


def test_only_named_runners() -> None:
    with pytest.raises(
        ValueError, match=r"got 'DirectRunner' \(it may run a pipeline again on another runner"
    ):
        runner_arguments("DirectRunner", ())
    with pytest.raises(ValueError, match="runner must be one of FnApiRunner, PrismRunner"):
        runner_arguments("SparkRunner", ())
    with pytest.raises(
        ValueError, match="flink_master must be given with FlinkRunner, as HOST:PORT"
    ):
        runner_arguments("FlinkRunner", ())


def test_prism_is_found_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prism_runner_binary() is None
    with pytest.raises(ValueError, match="prism_location must be the Prism binary"):
        runner_arguments("PrismRunner", ())
    (tmp_path / "prism").mkdir()
    binary = tmp_path / "prism" / "prism"
    binary.touch(mode=0o755)
    assert runner_arguments("PrismRunner", ()) == [f"--prism_location={binary}"]


OTHER_SECRET = "e05d8c7211fb4a96a3f07d1e62b8c953"  # noqa: S105 - of a test


def test_the_secret_is_read_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    assert SecretLocation(file=str(tmp_path / "secret")).load() == SECRET.encode()
    monkeypatch.setenv("OTHER", OTHER_SECRET)
    assert SecretLocation(variable="OTHER").load() == OTHER_SECRET.encode()
    monkeypatch.setenv("OTHER", "short")
    with pytest.raises(ValueError, match=r"128 random bits or more .* got 5 bytes in OTHER"):
        SecretLocation(variable="OTHER").load()
    monkeypatch.delenv("MEANSTREAM_SECRET")
    with pytest.raises(
        ValueError, match="in the environment of every worker, got no MEANSTREAM_SECRET"
    ):
        SecretLocation().load()
    monkeypatch.setenv("MEANSTREAM_SECRET_FILE", str(tmp_path / "secret"))
    assert SecretLocation().load() == SECRET.encode()
    with pytest.raises(ValueError, match="secret must be in a readable file"):
        SecretLocation(file=str(tmp_path / "none")).load()
    with pytest.raises(ValueError, match="got more than one"):
        SecretLocation(file="a", variable="b")


def test_three_lines_of_a_pipeline() -> None:
    import apache_beam as beam

    import meanstream.pipelines.beam.rounds.round_transforms

    text = meanstream.pipelines.beam.rounds.round_transforms.__doc__ or ""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert len(lines) == 3
    names: dict[str, Any] = {"beam": beam, "RunRounds": RunRounds}
    with beam.Pipeline(runner=_fn_api_runner()) as pipeline:
        exec("\n".join(lines), names | {"pipeline": pipeline}, names)  # noqa: S102 - of our own documentation
    assert str(names["means"].element_type).endswith("WindowEstimate'>")


def _fn_api_runner() -> Any:
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    return FnApiRunner()


def test_an_estimator_that_protects_no_user_is_refused():
    with pytest.raises(ValueError, match="estimator must protect users, not single samples"):
        RunRounds("item", name="rounds", lower=0, upper=1, epsilon=1.0, window="1d")
