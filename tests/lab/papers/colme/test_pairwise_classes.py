"""Classes of agents that query each other, against components that are found one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from meanstream.lab.papers.colme.pairwise_classes import classes_of_pairs
from meanstream.lab.papers.colme.pairwise_partners import Everyone, PartnerGraph


def one_by_one(
    accepted: np.ndarray, rejected: np.ndarray, present: np.ndarray
) -> set[frozenset[int]]:
    """Join agents whose pair passes in some direction and fails in none, until nothing changes."""
    groups = [{agent} for agent in np.flatnonzero(present).tolist()]
    for a, b in combinations(np.flatnonzero(present).tolist(), 2):
        passes = accepted[a, b] or accepted[b, a]
        if passes and not (rejected[a, b] or rejected[b, a]):
            joined = [group for group in groups if group & {a, b}]
            groups = [group for group in groups if group not in joined]
            groups.append(set().union(*joined))
    return {frozenset(group) for group in groups}


@pytest.mark.parametrize("seed", range(20))
def test_classes_are_the_components_of_what_passes_and_never_fails(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    flags = rng.random((n, n))
    accepted = flags < rng.uniform(0, 0.4)
    rejected = flags > rng.uniform(0.7, 1)
    present = rng.random(n) < 0.8
    found = classes_of_pairs(csr_matrix(accepted), csr_matrix(rejected), present)
    assert {frozenset(one.tolist()) for one in found} == one_by_one(accepted, rejected, present)
    assert sum(map(len, found)) == np.count_nonzero(present)


def test_both_layouts_say_who_is_the_agent_and_who_the_reader() -> None:
    """Everyone has room for one agent more than there are."""
    everyone = Everyone(4)
    graph = PartnerGraph({"ann": ("bob", "cem"), "bob": ("ann",)})
    for layout, reader, target in ((everyone, 0, 2), (graph, 0, 2), (graph, 1, 0)):
        readers, rows = layout.readers(target, 3)
        flags = np.zeros(layout.rows, np.bool_)
        flags[rows[readers == reader]] = True
        assert np.argwhere(layout.matrix(flags, 3).toarray()).tolist() == [[target, reader]]
        assert set(np.flatnonzero(flags)) <= set(layout.partner_rows(reader, 3).tolist())
