"""Runs an example under Flower's simulation with clients in this process: Flower's engine, without
Ray's processes.

`python flower_threads.py EXAMPLE`
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import Backend


class ThreadBackend(Backend):
    """Runs client apps in the threads of the engine."""

    num_workers = 2

    def __init__(self, backend_config: object) -> None:
        self._app: Callable[[], ClientApp] | None = None

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        self._app = app_fn

    def is_worker_idle(self) -> bool:
        return True

    def terminate(self) -> None:
        pass

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        assert self._app is not None
        return self._app()(message, context), context


if __name__ == "__main__":
    raybackend.RayBackend = ThreadBackend  # type: ignore[misc]
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
