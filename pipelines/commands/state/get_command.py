"""`meanstream get`: one agent's newest answer, a difference, or the highest agents, from a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.near_names import near_agent
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meanstream.streaming.agents.store_answers import PublicAnswers, StoreAnswers

MOST_RANKED = 20_000
"""Agents that are ranked: the work grows with the square of their number."""
MOST_NAMED = 20
"""Members of a class that are named in words; --json has all."""


def get(
    agent: Annotated[str | None, typer.Argument(help="Agent to show.")] = None,
    *,
    store: Annotated[
        Path,
        cli_option(
            "Store of `run agents` or `run agent-side`, or a folder of shards; it may be running.",
            INPUT,
        ),
    ],
    difference: Annotated[
        tuple[str, str] | None,
        cli_option(
            "Two agents: by how much the first one's mean is above the other's.",
            OUTPUT,
            shows=True,
        ),
    ] = None,
    top: Annotated[
        int | None,
        cli_option("Number of agents: which ones may have the highest means.", OUTPUT, shows=True),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest estimate of an agent, the difference of two, or the agents with the highest means.

    The last run computed an estimate from the agent's own samples and all releases; it is private to this agent and the
    operator of the store. `--difference` and `--top` rest on releases alone and are public. Nothing is spent.

    Of agents that query each other it also names the other members of the agent's class; their
    releases are for their readers alone, so there is no `--difference` and no `--top`.

    \b
    Examples:
      meanstream get N14228 --store state.db
      meanstream get N14228 --store state.db --json
      meanstream get --difference N14228 N24211 --store state.db
      meanstream get --top 10 --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.agents.pairwise.pairwise_answers import HostedAnswers
    from meanstream.streaming.agents.store_answers import answer_of_stores
    from meanstream.streaming.own_paths import stores_at
    from meanstream.streaming.store.state_store import StoreError

    if sum(choice is not None for choice in (agent, difference, top)) != 1:
        raise BadOption("get must have one of AGENT, --difference A B and --top N")

    try:
        with refusing_options():
            answers = [HostedAnswers(path) for path in stores_at(store)]

        if agent is not None:
            estimate = answer_of_stores(answers, agent)
            if estimate is None:
                rule = f"have a sample that counts in {str(store)!r}"
                hint = near_agent(agent, [name for stores in answers for name in stores.names()])
                raise BadOption(f"agent must {rule}, got {agent!r}{hint}")

            _write_estimate(estimate, as_json=as_json)
        else:
            if len(answers) > 1:
                option = "difference" if top is None else "top"
                raise BadOption(f"{option} must come with one store, got {str(store)!r}")

            _write_decision(answers[0], store, difference, top, as_json=as_json)
    except StoreError as error:
        raise BadOption(str(error)) from None


def _write_estimate(estimate: dict[str, Any], *, as_json: bool) -> None:
    """Write an agent's estimate."""
    if as_json:
        print_options_json(estimate)
        return

    sys.stdout.write(_shown(estimate))


def _write_decision(
    answers: StoreAnswers,
    store: Path,
    difference: tuple[str, str] | None,
    top: int | None,
    *,
    as_json: bool,
) -> None:
    """Write what follows from the releases of all agents."""
    public = answers.public()
    if public is None:
        raise BadOption(f"store must have a release, got none in {str(store)!r}")

    if difference is not None:
        decided, said = _difference(public, difference)
    else:
        decided, said = _top(public, top or 0)

    if as_json:
        print_options_json(decided)
    else:
        sys.stdout.write(said)


def _difference(public: PublicAnswers, pair: tuple[str, str]) -> tuple[dict[str, Any], str]:
    """Compare two agents; say so in words too."""
    from meanstream.operators.collaboration.joint_means import difference_of_two
    from meanstream.operators.validation import closest_valid, printable

    numbers = {name: number for number, name in enumerate(public.names)}
    for name in pair:
        if name not in numbers:
            hint = closest_valid(name, public.names)
            raise BadOption(f"difference must be of agents with a release, got {name!r}{hint}")

    if pair[0] == pair[1]:
        raise BadOption(f"difference must be of two different agents, got {pair[0]!r} twice")

    value, half_width, probability = difference_of_two(
        public.joint, numbers[pair[0]], numbers[pair[1]], level=public.level
    )
    low = value - half_width

    high = value + half_width
    decided = {
        "difference": list(pair),
        "value": value,
        "interval": [low, high],
        "probability": probability,
        "level": public.level,
    }
    first, second = (printable(name) for name in pair)
    said = f"{first} - {second}: {value:g} [{low:g}, {high:g}] ({100 * public.level:g} %)\n"

    return decided, f"{said}{first} is above with probability {probability:.3g}\n"


def _top(public: PublicAnswers, count: int) -> tuple[dict[str, Any], str]:
    """List the agents that may be among the highest; say so in words too."""
    from meanstream.operators.collaboration.joint_means import rank_sets
    from meanstream.operators.validation import printable

    n = len(public.names)
    if not 1 <= count <= n:
        raise BadOption(f"top must be from 1 to the number of agents, {n:,}, got {count}")
    if n > MOST_RANKED:
        raise BadOption(f"top must be of at most {MOST_RANKED:,} agents, got {n:,}")

    rank, least, greatest = rank_sets(public.joint, level=public.level)
    agents = [
        {
            "agent": public.names[row],
            "mean": float(public.joint.value[row]),
            "rank": int(rank[row]),
            "lower": int(least[row]),
            "upper": int(greatest[row]),
            "surely": bool(greatest[row] <= count),
        }
        for row in rank.argsort().tolist()
        if least[row] <= count
    ]

    lines = [
        f"{printable(line['agent'])}: {line['mean']:g}, rank {line['rank']}, possible {line['lower']} to "
        f"{line['upper']}, {'surely' if line['surely'] else 'possibly'} in\n"
        for line in agents
    ]
    said = f"All ranks hold together with probability {public.level:g}; all others are surely not in.\n"

    return {"top": count, "level": public.level, "agents": agents}, "".join([*lines, said])


def _shown(found: Mapping[str, Any]) -> str:
    from meanstream.operators.validation import printable

    low, high = found["interval"]
    own_low, own_high = found["local_interval"]

    return (
        f"{printable(found['agent'])}: {found['value']:g} [{low:g}, {high:g}] ({100 * found['level']:g} %), "
        f"of {found['n']:,} samples\n"
        f"alone: {found['local']:g} [{own_low:g}, {own_high:g}]\n"
        f"{_of_its_values(found)}"
        f"{_members(found)}"
        f"as of {found['time']}, {_duration(found['age_seconds'])} ago\n"
        f"budget: {_budget(found)}\n"
    )


def _budget(found: Mapping[str, Any]) -> str:
    """Say what the agent has spent, and what it is protected at."""
    budget = found["budget"]
    promise = f"protected at ({found['epsilon']:g}, {found['delta']:g})"
    if "readers" in budget:
        return f"{_pairs_budget(budget)}, {promise} towards each reader"

    if budget["horizon"] is None:
        return f"{budget['spent']} releases, which have no end, {promise}"
    return f"{budget['spent']} of {budget['horizon']} releases spent, {promise}"


def _pairs_budget(budget: Mapping[str, Any]) -> str:
    """Say how often an agent that is queried has released, where that is for the agent.

    Examples
    --------
    >>> _pairs_budget({"readers": None, "spent": None, "remaining": None, "horizon": 40})
    'at most 40 releases to each reader'
    """
    if budget["readers"] is None:  # it depends on values of the readers
        return f"at most {budget['horizon']} releases to each reader"
    return (
        f"{budget['readers']} readers, at most {budget['spent']} of {budget['horizon']} "
        f"releases to one (epsilon {budget['epsilon_of_all_readers']:.4g} if all pool)"
    )


def _members(found: Mapping[str, Any]) -> str:
    r"""Name the other agents of the agent's class, where agents query each other.

    Examples
    --------
    >>> _members({"members": ["ann", "bob"]}), _members({"members": []}), _members({})
    ('class: with ann, bob\n', 'class: no other agent\n', '')
    """
    from meanstream.operators.validation import printable

    if "members" not in found:
        return ""

    members = found["members"]
    named = ", ".join(printable(name) for name in members[:MOST_NAMED])
    others = f" and {len(members) - MOST_NAMED:,} more" if len(members) > MOST_NAMED else ""

    return f"class: with {named}{others}\n" if members else "class: no other agent\n"


def _of_its_values(found: Mapping[str, Any]) -> str:
    r"""Say quantiles and exceedances, where some were requested.

    Examples
    --------
    >>> _of_its_values({"quantiles": [{"quantile": 0.9, "value": 31.5, "interval": [28.0, 36.0]}]})
    'quantile 0.9: 31.5 [28, 36]\n'
    """
    lines = [
        (f"quantile {one['quantile']:g}", one["value"], one["interval"])
        for one in found.get("quantiles", ())
    ]
    lines += [
        (f"share above {one['threshold']:g}", one["share"], one["interval"])
        for one in found.get("exceeds", ())
    ]

    return "".join(f"{name}: {value:g} [{low:g}, {high:g}]\n" for name, value, (low, high) in lines)


def _duration(seconds: float) -> str:
    """Say how long something is ago.

    Examples
    --------
    >>> _duration(12.3), _duration(7300), _duration(3e5)
    ('12 s', '2.0 h', '3.5 d')
    """
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"

    return f"{seconds:.0f} s"
