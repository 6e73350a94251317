"""A pool of Beam workers for several jobs of one TaskManager, on loopback.

Beam's own pool knows a worker by a number that is unique within its job only, so the end of one job
stops the workers of another. This pool stops no worker by number: a worker ends when its job closes
the connection, and all workers end with the pool.

Workers are forks of one process that has imported Beam and the pipelines already. A new interpreter
for each worker would spend two seconds of processor time on imports.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils import thread_pool_executor

IMPORTED = [
    "apache_beam.runners.worker.sdk_worker",
    "confluent_kafka",
    "meanstream.beam",
    "meanstream.pipelines.beam.agents.agent_transforms",
    "meanstream.pipelines.beam.agents.agents_from_files",
    "meanstream.pipelines.beam.kafka.write_kafka",
    "meanstream.pipelines.beam.kafka.beam_kafka_source",
    "meanstream.pipelines.beam.rounds.rounds_from_files",
    "meanstream.pipelines.beam.rounds.round_transforms",
    "pytest",
    "tests.servers.support.flink_jobs",
    "tests.servers.support.worker_pool",
]
"""Modules that workers share. A module that cannot be imported is left to the worker, which then
says why."""


def run_worker(control: str, worker_id: str, environment: dict[str, str]) -> None:
    """Serve one job until it closes the connection."""
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    os.environ.update(environment)
    SdkHarness(control, worker_id=worker_id, state_cache_size=0, data_buffer_time_limit_ms=-1).run()


class WorkerPool(BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]  # Beam's is not typed
    """Starts workers; they end by themselves."""

    def __init__(self) -> None:
        super().__init__(use_process=True)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(IMPORTED)
        forkserver.ensure_running()  # here, and not in the first thread that asks for a worker

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:  # noqa: N802 - the service calls it so
        """Fork one. Parameters of the environment's configuration become variables of the
        worker."""
        asked = start_worker_request
        arguments = (asked.control_endpoint.url, asked.worker_id, dict(asked.params))
        self._processes.Process(target=run_worker, args=arguments, daemon=True).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:  # noqa: N802 - the service calls it so
        """Do nothing: see above."""
        return beam_fn_api_pb2.StopWorkerResponse()


def main(port: int) -> None:
    """Serve until killed."""
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(WorkerPool(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()
