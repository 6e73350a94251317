"""The text that identifies a release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")  # what percent-encoding leaves alone


def release_ids(
    names: Sequence[str],
    agent: Sequence[int],
    index: Sequence[int],
    *,
    deployment: str | None = None,
) -> list[str]:
    """Give the ids of releases.

    Deployment, slash, agent, colon, and which release of the agent it is, from 1.

    Deployment and agent are percent-encoded. Ids of a store that was begun before deployments had
    names have none.

    Examples
    --------
    >>> release_ids(["N14228", "tail 7"], [0, 1], [3, 1], deployment="flights")
    ['flights/N14228:3', 'flights/tail%207:1']
    """
    prefix = "" if deployment is None else f"{_encoded(deployment)}/"
    owners = [names[a] for a in agent]
    if not _PLAIN.fullmatch("".join(owners)):
        encoded = {name: _encoded(name) for name in set(owners)}
        owners = [encoded[name] for name in owners]

    return [f"{prefix}{owner}:{i}" for owner, i in zip(owners, index, strict=True)]


def _encoded(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return quote(name, safe="")
