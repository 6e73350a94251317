"""A sample stream to try things on.

Agents of three classes, made of a seed, written to a topic as time goes by.

Example: python docker/producer.py 'kafka://127.0.0.1:9092/samples?create=4' --agents 100 --rate 200
Ends on SIGTERM with code 0, after what was sent is acknowledged.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

from meanstream.streaming.events.encode import encode_columns_as_lines
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.events.times import time_as_datetime
from meanstream.streaming.events.wire import Sample
from meanstream.streaming.kafka.connection.kafka_client import Producer, make_client_producer
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.writing.kafka_sink import open_output_topic, sink_records
from meanstream.streaming.sources.synthetic_source import SyntheticPopulation, SyntheticSource

TURN_SECONDS = 0.1
FLUSH_SECONDS = 30.0


def main() -> int:
    """Write until the stream or the patience of the operator ends."""
    options = arguments()
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stopped.append(got))
    try:
        location = KafkaLocation.parse(options.topic, role="samples")
        population = SyntheticPopulation(
            agents=options.agents,
            samples=options.samples or sys.maxsize,
            start=time.time(),
            interval=1 / options.rate,
            seed=options.seed,
        )
        open_output_topic(location)
        if options.topic_only:
            return 0
        producer = make_client_producer(location, linger_ms=20)
    except ValueError as error:
        sys.stderr.write(f"producer: {error}\n")
        return 2
    failed: list[str] = []

    def stop() -> bool:
        return bool(stopped or failed)

    write = partial(
        send, producer, location.topic, prefix=f"{int(population.start)}-", failed=failed, stop=stop
    )
    pace(SyntheticSource(population), write, population, stop)
    left = producer.flush(FLUSH_SECONDS)
    if left or failed:
        sys.stderr.write(
            f"producer: {left} records not acknowledged{': ' + failed[0] if failed else ''}\n"
        )
    return 1 if left or failed else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic", help="kafka://HOST:PORT/TOPIC[?create=PARTITIONS][&config=FILE]")
    parser.add_argument("--agents", type=int, default=100, help="number of agents (100)")
    parser.add_argument("--rate", type=positive, default=200.0, help="samples per second (200)")
    parser.add_argument("--samples", type=int, default=0, help="end after so many (0: never)")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another stream (0)")
    parser.add_argument("--topic-only", action="store_true", help="make the topic and end")
    return parser.parse_args()


def positive(text: str) -> float:
    """Read a number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text!r}")
    return number


def pace(
    source: SyntheticSource,
    write: Callable[[SampleColumns], None],
    population: SyntheticPopulation,
    stop: Callable[[], bool],
) -> None:
    """Write each sample when its event time has come."""
    sent, more = 0, True
    while more and not stop():
        due = int((time.time() - population.start) / population.interval) - sent
        if due <= 0:
            time.sleep(TURN_SECONDS)
            continue
        batch = source.next_batch(due)
        sent, more = sent + due, not batch.exhausted
        write(batch.samples)


def send(
    producer: Producer,
    topic: str,
    samples: SampleColumns,
    *,
    prefix: str,
    failed: list[str],
    stop: Callable[[], bool],
) -> None:
    """Send samples as the JSON lines that a file would hold, keyed by agent."""
    columns = {
        "agent": [samples.names[i] for i in samples.agent.tolist()],
        "value": samples.value.tolist(),
        "time": [time_as_datetime(t).isoformat() for t in samples.time.tolist()],
        "id": [f"{prefix}{row}" for row in samples.position.tolist()],
    }
    records = sink_records(topic, encode_columns_as_lines(Sample, columns, {}))

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for key, value, headers in zip(records.keys, records.values, records.headers, strict=True):
        while not stop():
            try:
                producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                break
            except BufferError:  # brokers are away or slow: what waits is bounded
                producer.poll(TURN_SECONDS)
    producer.poll(0)


if __name__ == "__main__":
    sys.exit(main())
