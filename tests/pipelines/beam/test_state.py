"""State of a pipeline that something else has made is refused in one line, before anything of it is
read or released.

What a savepoint of a real Flink restores is in tests/servers/test_flink_savepoint.py.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

import meanstream.pipelines.beam
from meanstream.operators.agents.agents_settings import settings_identity
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agents_coders import (
    pack_for_coder,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentSamples,
    FittedReleases,
    OwnBatch,
    Packed,
    PartialReleases,
    Tick,
)
from meanstream.pipelines.beam.agents.agents_parts import agents_part_state
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, _ToShards, tick_bits
from meanstream.pipelines.beam.agents.answer_agents import AnswerAgents
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import GatherShard, JoinShards
from meanstream.pipelines.beam.agents.pairwise_turns import StepFederation
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state import beam_state as state
from meanstream.pipelines.beam.keyed_state.beam_state import StateMark, StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import KeyedStep
from meanstream.pipelines.beam.rounds.answer_rounds import AnswerCarried, AnswerOnce
from meanstream.pipelines.beam.rounds.budget_of_users import (
    SLOTS,
    EnforceBudget,
    JoinUsers,
    UsersBySlot,
)
from meanstream.pipelines.beam.rounds.round_transforms import (
    RunRounds,
    SummarizeUsers,
    sample_batch,
)
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import window_timestamp
from meanstream.pipelines.beam.rounds.summaries_on_beam import JoinBatches
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.store.store_identity import OtherIdentityError
from tests.pipelines.beam.agents.test_agents_idempotent import public, samples_of
from tests.pipelines.beam.agents.test_agents_pairwise import SETTINGS as PAIRS
from tests.pipelines.beam.agents.test_agents_pairwise import samples as pair_samples
from tests.pipelines.beam.rounds.test_curator import users_of
from tests.pipelines.beam.rounds.test_run_rounds_transform import users
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS
from tests.pipelines.beam.support.collecting import run
from tests.pipelines.beam.support.keyed_cells import Bag, Cell, cells, fire, take
from tests.streaming.support.rounds_world import SECRET, rounds_settings, samples

WINDOWS = AgentWindows(refresh=20 * HOUR)
ON_TIME = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)
OTHER_SECRET = "5f0d8c2b7a6e41939fd2c1b08e7a4d36"  # noqa: S105 - of a test


@pytest.fixture(autouse=True)
def _other_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", OTHER_SECRET)


Step = Callable[[beam.DoFn, dict[str, Any], int], list[Any]]


class Kept:
    """A stateful step under some settings: how to make it and let it live for one window."""

    def __init__(self, kind: type[beam.DoFn], make: Callable[..., beam.DoFn], live: Step) -> None:
        self.kind, self.make, self.live = kind, make, live

    def life(self, kept: dict[str, Any], number: int = 0, **changes: Any) -> list[Any]:
        step = self.make(**changes)
        step.setup()
        return self.live(step, kept, number)


def owner_of(
    settings: Any, secret: SecretLocation, shards: int, refresh: float | None
) -> StateOwner:
    windows = AgentWindows(refresh=refresh)
    return StateOwner(settings=agents_part_state(settings, windows, shards), secret=secret)


def agents_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    settings, place = replace(SETTINGS, **changes), secret or SecretLocation()
    owner = owner_of(settings, place, shards, refresh)
    return ReleaseShard(settings, AgentWindows(refresh=refresh), place, owner, final_release=False)


def gather_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    settings = replace(SETTINGS, **changes)
    owner = owner_of(settings, secret or SecretLocation(), shards, refresh)
    return GatherShard(settings, EngineOptions(), AgentWindows(refresh=refresh), owner)


def join_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    owner = owner_of(replace(SETTINGS, **changes), secret or SecretLocation(), shards, refresh)
    return JoinShards(owner, AgentWindows(refresh=refresh))


def fit_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    settings = replace(SETTINGS, **changes)
    owner = owner_of(settings, secret or SecretLocation(), shards, refresh)
    return FitReleases(settings, EngineOptions(), AgentWindows(refresh=refresh), owner)


def answer_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    settings = replace(SETTINGS, **changes)
    owner = owner_of(settings, secret or SecretLocation(), shards, refresh)
    return AnswerAgents(settings, EngineOptions(), AgentWindows(refresh=refresh), owner)


def gate_step(
    shards: int = 8,
    refresh: float = 20 * HOUR,
    secret: SecretLocation | None = None,
    **changes: Any,
) -> Any:
    return _ToShards(
        owner_of(replace(SETTINGS, **changes), secret or SecretLocation(), shards, refresh), shards
    )


def pairs_step(
    refresh: float = 20 * HOUR, secret: SecretLocation | None = None, **changes: Any
) -> Any:
    of_pairs = {"schedule": changes.pop("schedule")} if "schedule" in changes else {}
    pairs = replace(PAIRS, release=replace(PAIRS.release, **changes), **of_pairs)
    return StepFederation(
        pairs, AgentWindows(refresh=refresh), secret or SecretLocation(), EngineOptions(), 100
    )


def budget_step(shards: int = 8, secret: SecretLocation | None = None, **changes: Any) -> Any:
    settings = rounds_settings(**{"user_budget": 4.0, **changes})
    return EnforceBudget(
        settings, JoinUsers(settings, secret or SecretLocation(), shards=shards)._owner
    )


def carried_step(secret: SecretLocation | None = None, **changes: Any) -> Any:
    return AnswerCarried(
        rounds_settings(**{"estimator": "repeating", **changes}), secret or SecretLocation()
    )


def curator_step(secret: SecretLocation | None = None, **changes: Any) -> Any:
    settings = rounds_settings(**{"estimator": "cummings.ratio", "users": 60, **changes})
    return AnswerOnce(settings, secret or SecretLocation())


def live_agents(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    part = samples_of(number)
    for element in (pack_for_coder(part), Tick(number, float(part.time.max()))):
        take(step, element, kept)
    return list(fire(step, step._windows.released(number), kept))


def live_pairs(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    begin = number * step._windows.refresh
    rows = sample_batch(
        *zip(*((who, value, at + begin) for who, value, at in pair_samples()), strict=True)
    )
    names, point = pa.array(rows.names, pa.large_string()), PAIRS.release.grid.encode(rows.value)
    part = AgentSamples(
        names=names,
        agent=rows.agent,
        point=point,
        time=rows.time,
        key=np.zeros(0, np.uint64),
        position=rows.position,
    )
    for element in (pack_for_coder(part), Tick(number, float(part.time.max()))):
        take(step, element, kept)
    return list(fire(step, step._windows.released(number), kept))


def live_gather(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    for element in (*RELEASED, Tick(number, 1.0)):
        take(step, element, kept)
    return list(fire(step, step._windows.gathered(number), kept))


def change_told(number: int) -> Packed:
    """A shard's change that brings nothing."""
    change = replace(
        fit_step().empty(),
        pools={0: PooledVariance(SETTINGS.lower, SETTINGS.upper)},
        turns={0: number + 1},
        number=number,
    )
    return Packed(ColumnsCoder(PartialReleases).encode(change))


def live_join(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    take(step, change_told(number), kept)
    return list(fire(step, step._windows.joined(number), kept))


def live_fit(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    for element in (change_told(number), Tick(number, 1.0, b"\x01")):
        take(step, element, kept)
    return list(fire(step, step._windows.fitted(number), kept))


def live_answer(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    """A shard's own sums, and the population of its window."""
    maker, fit = agents_step(), fit_step()
    maker.setup(), fit.setup()
    made = live_agents(maker, cells(ReleaseShard), number)
    (own,) = [
        one.value.value
        for one in made
        if isinstance(one, beam.pvalue.TaggedOutput) and one.tag == "own"
    ]
    fitted = fit.fit(fit.empty(), [Tick(number, 1.0)])
    elements = (
        b"o" + ColumnsCoder(OwnBatch).encode(own),
        b"p" + ColumnsCoder(FittedReleases).encode(fitted),
    )
    step.start_bundle()
    told = [one for element in elements for one in take(step, element, kept)]
    return [*told, *step.finish_bundle()]


def live_gate(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    step.start_bundle()
    told = take(step, (number, 1.0, tick_bits(np.arange(step._shards))), kept)
    return [*told, *step.finish_bundle()]


def live_budget(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    window = Window(number * 86_400_000_000, (number + 1) * 86_400_000_000)
    take(step, replace(users(), window=window), kept)
    return list(fire(step, window_timestamp(step._settings, window), kept))


def live_carried(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    window = Window(number * 86_400_000_000, (number + 1) * 86_400_000_000)
    take(step, replace(users(), window=window), kept)
    return list(fire(step, window_timestamp(step._settings, window), kept))


def live_curator(step: Any, kept: dict[str, Any], number: int) -> list[Any]:
    return take(step, users_of(5 + number), kept)


RELEASED: list[Packed] = []
"""No releases are waiting: a tick is enough to be answered."""
AGENTS = {
    "epsilon": 2.0,
    "lower": -1,
    "name": "another",
    "horizon": 13,
    "shards": 4,
    "refresh": 10 * HOUR,
}
PAIRS_CHANGED = {"epsilon": 2.0, "upper": 11, "name": "another", "refresh": 10 * HOUR}
ROUNDS = {"epsilon": 1.0, "upper": 11, "name": "another", "window": "2d"}
KEPT: dict[str, tuple[Kept, dict[str, Any]]] = {
    "agents": (Kept(ReleaseShard, agents_step, live_agents), AGENTS),
    "releases": (Kept(GatherShard, gather_step, live_gather), AGENTS),
    "groups": (Kept(JoinShards, join_step, live_join), AGENTS),
    "fits": (Kept(FitReleases, fit_step, live_fit), AGENTS),
    "answers": (Kept(AnswerAgents, answer_step, live_answer), AGENTS),
    "ticks": (Kept(_ToShards, gate_step, live_gate), AGENTS),
    "pairwise": (
        Kept(StepFederation, pairs_step, live_pairs),
        {**PAIRS_CHANGED, "schedule": "restricted_round_robin"},
    ),
    "budgets": (
        Kept(EnforceBudget, budget_step, live_budget),
        {**ROUNDS, "user_budget": 6.0, "shards": 4},
    ),
    "carried": (Kept(AnswerCarried, carried_step, live_carried), {**ROUNDS, "level": 0.9}),
    "curator": (Kept(AnswerOnce, curator_step, live_curator), ROUNDS),
}
CHANGES = [
    (name, option, value)
    for name, (_, changes) in KEPT.items()
    for option, value in changes.items()
]


@pytest.mark.parametrize(("name", "option", "value"), CHANGES, ids=lambda one: str(one)[:12])
def test_a_restore_under_other_settings_is_one_line_before_anything_is_read(
    name: str, option: str, value: Any
) -> None:
    step, _ = KEPT[name]
    kept = cells(step.kind)
    assert step.life(kept, 0)
    before = contents(kept)
    with pytest.raises(
        OtherIdentityError,
        match=rf"^{option} must be .* as in the state that is continued, got [^\n]*$",
    ):
        step.life(Watching.over(kept), 1, **{option: value})
    assert contents(kept) == before
    assert step.life(kept, 0 if name == "curator" else 1) or name in {"curator", "releases"}


@pytest.mark.parametrize("name", KEPT)
def test_a_restore_under_another_secret_is_one_line(name: str) -> None:
    step, _ = KEPT[name]
    kept = cells(step.kind)
    assert step.life(kept)
    with pytest.raises(
        OtherIdentityError, match=r"^secret must be the one that the state began with, got another$"
    ) as no:
        step.life(Watching.over(kept), 1, secret=SecretLocation(variable="OTHER"))
    assert OTHER_SECRET not in str(no.value)
    assert all(
        text.encode() not in repr(contents(kept)).encode() for text in (SECRET, OTHER_SECRET)
    )


@pytest.mark.parametrize("name", sorted(KEPT.keys() - {"ticks"}))
def test_state_without_a_mark_is_refused(name: str) -> None:
    """As an older version has left it."""
    step, _ = KEPT[name]
    kept = cells(step.kind)
    assert step.life(kept)
    kept["made"] = Cell()
    with pytest.raises(OtherIdentityError, match=r"^state must say what made it, got none"):
        step.life(kept, 1)


@pytest.mark.parametrize("name", ["agents", "pairwise", "budgets"])
def test_a_timer_that_was_set_before_refuses_too(name: str) -> None:
    """A shard that gets nothing any more still has what waited in it."""
    step, changes = KEPT[name]
    kept = cells(step.kind)
    begun = step.make()
    begun.setup()
    part = samples_of(0)
    elements: list[Any] = [pack_for_coder(part), Tick(0, float(part.time.max()))]
    if name == "budgets":
        elements = [users()]
    for element in elements:
        take(begun, element, kept)
    restored = step.make(**{"epsilon": changes["epsilon"]})
    restored.setup()
    with pytest.raises(OtherIdentityError, match=r"^epsilon must be"):
        fire(restored, Timestamp(10**12), Watching.over(kept))


class Watching:
    """A cell or a bag of restored state that nobody may read, but to say whether it is empty."""

    def __init__(self, state: Any) -> None:
        self._state = state

    @classmethod
    def over(cls, kept: dict[str, Any]) -> dict[str, Any]:
        return {name: one if name == "made" else cls(one) for name, one in kept.items()}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"state was touched: {name}")


def contents(kept: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(one.values) if isinstance(one, Bag) else one.value for name, one in kept.items()
    }


def test_without_the_mark_other_shards_give_a_release_id_a_second_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The known-bad twin: what was there before accepts all of it, and the same comparison sees
    that."""
    step, kept = KEPT["agents"][0], cells(ReleaseShard)
    first = public(step.life(kept, 0))
    with pytest.raises(OtherIdentityError):
        step.life(kept, 0, shards=4)
    monkeypatch.setattr(StateMark, "claim", lambda *_: None)
    moved = cells(
        ReleaseShard
    )  # of a shard that the agent comes to under another number of shards: it is empty
    assert len(public(step.life(kept, 1, epsilon=2.0))) > 0
    second = public(step.life(moved, 1, shards=4))
    ids = [{line.split(b'"')[3] for line in lines} for lines in (first, second)]
    assert ids[0] & ids[1], "the same ids"
    assert not {*first} & {*second}, "of other values"


def test_ticks_stop_at_their_state_so_that_an_empty_shard_has_none() -> None:
    """Under more shards agents come to shards that know of nothing; under fewer, too."""
    step, kept = KEPT["ticks"][0], cells(_ToShards)
    assert len(step.life(kept, 0)) == 9  # the last one is for what waits for all of them
    for shards in (4, 16):
        with pytest.raises(OtherIdentityError, match=rf"^shards must be 8 as in .*, got {shards}$"):
            step.life(kept, 1, shards=shards)


def test_budgets_are_in_the_same_slot_whatever_the_shards() -> None:
    batch = users([f"user {n}" for n in range(300)])
    slots = {
        name: slot
        for slot, part in UsersBySlot().process((3, batch))
        for name in part.names.to_pylist()
    }
    assert len(slots) == 300
    assert set(slots.values()) <= set(range(SLOTS))
    words = keyed_owner_words(list(slots))
    assert [int(word) % SLOTS for word in words[:, 1]] == list(slots.values())


def test_what_waits_to_be_joined_is_known_again() -> None:
    settings, other = rounds_settings(), rounds_settings(epsilon=1.0)
    mine, theirs = (JoinUsers(one, SecretLocation(), shards=8)._owner for one in (settings, other))
    (marked,) = list(_marked(theirs))
    join = JoinBatches(settings, 8, mine)
    join.setup()
    with pytest.raises(
        OtherIdentityError, match=r"^name, settings, shards and secret must be those"
    ):
        list(join.process(marked, ON_TIME))
    (good,) = list(_marked(mine))
    assert [shard for shard, _ in join.process(good, ON_TIME)] == [5]


def _marked(owner: StateOwner) -> Iterator[tuple[tuple[int, int], list[UserBatch]]]:
    step = state.MarkKeys(owner, len)
    step.setup()
    for key, batch in step.process((5, users())):
        assert 0 <= key[0] < 2**63
        assert key[1] == len(batch)
        yield key, [batch]


def test_a_mark_is_the_same_on_every_retry_and_of_equal_settings() -> None:
    one, two = (
        StateMark({"lower": value, "agents": ("a", "b")}, SECRET.encode()) for value in (0, 0)
    )
    kept = [Cell(), Cell()]
    one.claim(kept[0])
    two.claim(kept[1])
    assert kept[0].value == kept[1].value
    two.claim(kept[0])
    assert one.shard(two.key(7)) == 7


def stateful() -> set[type[beam.DoFn]]:
    """Every DoFn of the package that has state."""
    modules = pkgutil.walk_packages(
        meanstream.pipelines.beam.__path__, "meanstream.pipelines.beam."
    )
    kinds = {
        kind
        for module in modules
        for kind in vars(import_module(module.name)).values()
        if inspect.isclass(kind) and issubclass(kind, beam.DoFn)
    }
    return {
        kind
        for kind in kinds
        if kind.__module__.startswith("meanstream.")
        and any("state_spec" in vars(one.default) for one in parameters(kind))
    }


def parameters(kind: type[beam.DoFn]) -> Iterable[inspect.Parameter]:
    """What Beam is asked for by the methods of a step."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    found = [inspect.signature(method).parameters.values() for _, method in methods]
    return [one for some in found for one in some if hasattr(one.default, "__dict__")]


def test_every_step_with_state_is_here() -> None:
    """A step that keeps something, and does not say what made it, fails here."""
    found = stateful()
    bases = {KeyedStep, *(base for kind in found for base in kind.__mro__[1:])}
    assert found - bases == {step.kind for step, _ in KEPT.values()}
    assert all(issubclass(kind, KeyedStep) and "made" in kind.SPECS for kind in found)


def test_rounds_run_with_marks_and_budgets() -> None:
    settings = rounds_settings(user_budget=4.0)
    found, counters = run(samples(), RunRounds(settings))
    assert sorted(one.users for one in found) == [0, 0, 12, 12]
    assert counters["over_budget"] > 0
    users_, _ = run(samples(), SummarizeUsers(settings, shards=3))
    assert all(0 <= slot < SLOTS for slot, _ in users_)


def test_names_in_a_refusal_are_those_of_options() -> None:
    assert agents_part_state(SETTINGS, WINDOWS, 8).keys() == {
        *settings_identity(SETTINGS),
        "state",
        "refresh",
        "shards",
    }
