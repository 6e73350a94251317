"""Classes of agents that query each other, as their tests found them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from meanstream.operators.records import Bools, Ints


def classes_of_pairs(accepted: Any, rejected: Any, present: Bools) -> list[Ints]:
    """Return the classes of agents, each with the places of its agents.

    Two agents are of one class if a test of their pair accepts and none rejects, directly or over
    others.

    Parameters
    ----------
    accepted, rejected : sparse matrix (n, n)
        Entry (i, j) is nonzero where the test of reader j accepts, or rejects, agent i.
    present : bool array (n,)
        Agents that count.

    Examples
    --------
    >>> accepted = csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]))
    >>> rejected = csr_matrix(np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
    >>> [of_class.tolist() for of_class in classes_of_pairs(accepted, rejected, np.ones(4, bool))]
    [[0, 1], [2], [3]]
    """
    either = (accepted + accepted.T).astype(np.bool_)
    none = (rejected + rejected.T).astype(np.bool_)
    alike = either > none

    # Those that are not there connect nobody.
    kept = np.flatnonzero(present)
    number, label = connected_components(csr_matrix(alike[kept][:, kept]), directed=False)
    order = np.argsort(label, kind="stable")
    cuts = np.cumsum(np.bincount(label, minlength=number))[:-1]

    return [kept[places] for places in np.split(order, cuts)] if number else []
