"""Public attributes of agents by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import CovariateDesign
from meanstream.operators.records import AnyInts


@dataclass(frozen=True, slots=True, eq=False)
class AgentCovariates:
    """Public by declaration: attributes of agents.

    Attributes
    ----------
    design : CovariateDesign
    names : tuple of str
        Agents with a row.
    codes : int array, shape (n_agents, n_attributes)
    place : str or None
        File that they were read from, and its key column.
    """

    design: CovariateDesign
    names: tuple[str, ...]
    codes: AnyInts
    place: tuple[str, str] | None = None
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.names)})

    def of(self, names: Sequence[str]) -> AnyInts:
        """Give the codes of agents; those without a row have none, in every attribute."""
        row = np.fromiter((self._rows.get(name, -1) for name in names), np.int64, len(names))
        return np.concatenate([self.codes, self.design.missing[None]])[row]

    def known(self, names: Sequence[str]) -> int:
        """Count those that have a row."""
        return sum(name in self._rows for name in names)
