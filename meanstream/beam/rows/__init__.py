"""Transforms with named outputs of rows, for Beam YAML, SQL and pipelines in Java or Go.

They are `CollaborateAgents` and `RunRounds` of `meanstream.beam`, with arguments of plain data.
Each output is a PCollection of rows with a schema, made of the events of the same name: times are
text of RFC 3339, an interval is the columns `lower` and `upper`, and parts with parts of their own
(`quantiles`, `fitted`, `stages`) are text of JSON.

**Privacy.** A row is as private as its event: `estimates` of agents are each for its agent, and `rejected` of rounds
is for the operator of the pipeline. Beam does not know of this and writes them wherever it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import apache_beam as beam

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.validation import closest_valid, require
from meanstream.pipelines.beam.agents import agent_transforms
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS, SHARDS
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.rounds import round_transforms
from meanstream.pipelines.beam.worker.event_rows import EventRows, LinesOf, event_lines
from meanstream.pipelines.beam.worker.transform_arguments import as_window, settings_from_parameters
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.events.wire import (
    BudgetEvent,
    DeadLetter,
    DriftEvent,
    PersonalEstimate,
    Population,
    PrivateDeadLetter,
    Refusal,
    Release,
)
from meanstream.streaming.rounds.rounds_settings import RoundsSettings

__all__ = ["PROVIDERS", "CollaborateAgents", "RunRounds"]

PROVIDERS = Path(__file__).with_name("providers.yaml")
"""What a pipeline in Beam YAML includes to have these transforms."""

Plain = Mapping[str, Any] | Any
"""Parameters by name: a mapping, or a row of another language."""
_T = TypeVar("_T")


def _record(name: str, plain: Plain | None, kind: type[_T]) -> _T | None:
    """Make settings or options of plain data; what has no value is left out."""
    if plain is None or isinstance(plain, kind):
        return plain

    if isinstance(plain, beam.Row) or hasattr(plain, "_asdict"):
        plain = plain.as_dict() if isinstance(plain, beam.Row) else plain._asdict()

    require(isinstance(plain, Mapping), name, "be parameters by name", type(plain).__name__)
    known = [field.name for field in fields_of(kind) if field.name != "covariates"]  # type: ignore[arg-type]
    for one in plain:
        if one not in known:
            raise ValueError(
                f"{name} must have known parameters, got {one!r}{closest_valid(str(one), known)}"
            )

    given = {
        one: tuple(value) if isinstance(value, list) else value for one, value in plain.items()
    }
    return kind(**{one: value for one, value in given.items() if value is not None})


class CollaborateAgents(beam.PTransform):  # type: ignore[misc]
    """Samples to rows of every agent's own estimate, and of the releases that others learn from.

    Input: rows with the fields `agent`, `value` and, if there is one, `time` (seconds since the
    epoch, or a timestamp). Outputs: `estimates` (private, each row for its agent) and the public
    `releases`, `population`, `notices`, `refusals`, `rejected` and `drifts`.

    **Privacy.** That of `meanstream.beam.CollaborateAgents`: what leaves is (epsilon, delta)-differentially private
    with respect to the value of each sample. An estimate is for its agent.

    Parameters
    ----------
    name, lower, upper, epsilon, delta
        Deployment, bounds in the value's unit and privacy budget. Or `settings`, with all of them.
    settings, options, fields, secret : mapping or row, optional
        Parameters of `AgentsSettings`, `EngineOptions`, `SampleFields` and `SecretLocation` by
        name.
    refresh : float or str, optional
        Seconds of event time between estimates, or text such as "1h"; by default estimates are made
        at the end.
    shards : int
        Parts of the agents, each with its own state.

    Raises
    ------
    ValueError
        For a parameter that is unknown or breaks its rule.

    Examples
    --------
    >>> CollaborateAgents(name="delays", lower=0, upper=1, epsilon=1.0, delta=1e-6, options={"levle": 0.9})
    Traceback (most recent call last):
    ValueError: options must have known parameters, got 'levle'; did you mean 'level'?
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        settings: Plain | None = None,
        options: Plain | None = None,
        fields: Plain | None = None,
        secret: Plain | None = None,
        refresh: float | str | None = None,
        shards: int = AGENT_SHARDS,
    ) -> None:
        super().__init__()
        self._inner = agent_transforms.CollaborateAgents(
            _record("settings", settings, AgentsSettings),
            _record("options", options, EngineOptions),
            fields=_record("fields", fields, SampleFields),
            secret=_record("secret", secret, SecretLocation),
            refresh=refresh, shards=shards, name=name, lower=lower, upper=upper, epsilon=epsilon, delta=delta,
        )  # fmt: skip

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return self._inner.display_data()

    def expand(self, pcoll: beam.PCollection) -> dict[str, beam.PCollection]:
        """Collaborate, and take batches apart."""
        made = pcoll | "Collaborate" >> self._inner
        of_releases = partial(_release_lines, settings=self._inner.settings)
        kinds: dict[str, tuple[type[Event], LinesOf]] = {
            "estimates": (PersonalEstimate, attrgetter("lines")),
            "releases": (Release, of_releases),
            "population": (Population, event_lines),
            "notices": (BudgetEvent, event_lines),
            "refusals": (Refusal, event_lines),
            "rejected": (DeadLetter, event_lines),
            "drifts": (DriftEvent, event_lines),
        }

        return {
            name: getattr(made, name) | f"Rows of {name}" >> EventRows(kind, lines)
            for name, (kind, lines) in kinds.items()
        }


def _release_lines(batch: AgentReleases, settings: AgentsSettings) -> Any:
    return batch.lines(settings).lines


class RunRounds(beam.PTransform):  # type: ignore[misc]
    """Users' samples to rows of one private mean per window.

    Input: rows with the fields `agent` (the user), `value` and, if there is one, `time`. Outputs:
    `estimates` (public) and `rejected` (private, for the operator of the pipeline). Of vectors,
    densities and mixtures, `value`, `lower`, `upper`, `stderr` and `unclipped` are lists.

    **Privacy.** That of `meanstream.beam.RunRounds`: every user has (epsilon, 0) local differential privacy for all
    samples it sends within one window, their number included.

    Parameters
    ----------
    name, lower, upper, epsilon, window, estimator
        Deployment, bounds in the value's unit, privacy budget, width of a window (`7d`) and key of
        the estimator. Or `settings`, with all of them.
    settings, options, fields, secret : mapping or row, optional
        Parameters of `RoundsSettings`, `EngineOptions`, `SampleFields` and `SecretLocation` by
        name.
    shards : int
        Parts of the users, each with its own state.

    Raises
    ------
    ValueError
        For a parameter that is unknown or breaks its rule.

    Examples
    --------
    >>> RunRounds(name="delays", lower=0, upper=1, epsilon=1.0)
    Traceback (most recent call last):
    ValueError: window must be given, alone or within settings, got None
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
        epsilon: float | None = None,
        window: str | None = None,
        estimator: str | None = None,
        settings: Plain | None = None,
        options: Plain | None = None,
        fields: Plain | None = None,
        secret: Plain | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        whole = _record("settings", settings, RoundsSettings)
        parameters = {
            "lower": lower, "upper": upper, "epsilon": epsilon, "window": window, "name": name, "estimator": estimator
        }  # fmt: skip
        given = settings_from_parameters(whole, parameters, ("lower", "upper", "epsilon", "window"))

        if whole is None:
            whole = RoundsSettings(**{**given, "window": as_window(given["window"])})

        self._one_number = whole.one_mean
        self._inner = round_transforms.RunRounds(
            whole,
            _record("options", options, EngineOptions),
            fields=_record("fields", fields, SampleFields),
            secret=_record("secret", secret, SecretLocation),
            shards=shards,
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return self._inner.display_data()

    def expand(self, pcoll: beam.PCollection) -> dict[str, beam.PCollection]:
        """Run the rounds, and take events apart."""
        made = pcoll | "Run" >> self._inner
        as_estimates = EventRows(WindowEstimate, one_number=self._one_number)
        return {
            "estimates": made.estimates | "Rows of estimates" >> as_estimates,
            "rejected": made.rejected | "Rows of rejected" >> EventRows(PrivateDeadLetter),
        }
