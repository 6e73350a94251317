"""Which worker runs which files: some wait for servers, and the others compute meanwhile."""

from __future__ import annotations

import os
import re
from typing import Any

from xdist.scheduler import LoadFileScheduling

WAITS = re.compile(r"tests/servers/|kafka|flink|pubsub")
"""In the name of a file whose tests wait for servers most of their time."""


class WaitAndCompute(LoadFileScheduling):
    """Give whole files to workers, as `--dist loadfile` does, with a kind of file that each worker
    takes first.

    One worker per processor takes files that compute; the others take files that wait for servers.
    A worker whose kind has run out takes the other kind.
    """

    def _assign_work_unit(self, node: Any) -> None:
        computes = self.nodes.index(node) < (os.cpu_count() or 1)
        scope = next(
            (name for name in self.workqueue if (WAITS.search(name) is None) == computes), None
        )
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)
