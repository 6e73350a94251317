"""A pool of Beam workers for several jobs of one TaskManager, on loopback: `--service_port=PORT`.

Beam's own pool knows a worker by a number that is unique within its job only, so that the end of one job stops the
workers of another. Here nobody is stopped by number: a worker ends when its job closes the connection, and all do with
the pool.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils import thread_pool_executor


class WorkerPool(BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]  # Beam's is not typed
    """Starts processes; they end by themselves."""

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:  # noqa: N802 - the service calls it so
        return beam_fn_api_pb2.StopWorkerResponse()


def main(port: str) -> None:
    """Serve until killed."""
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    pool = WorkerPool(use_process=True, data_buffer_time_limit_ms=-1)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1].removeprefix("--service_port="))
