"""Programs of `peers.py`.

Each keeps a mean for each key of a topic, or reads a file, in a process of its own.
"""

BARE_LOOP = """
import sys
import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
class Sample(msgspec.Struct):
    agent: str
    value: float
    time: str
    id: str
class Mean(msgspec.Struct):
    agent: str
    n: int
    mean: float
address, topic, left, ids = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "ids"
decode, sums, seen = msgspec.json.Decoder(Sample).decode, {}, set()
consumer = Consumer({"bootstrap.servers": address, "group.id": "bare", "fetch.queue.backoff.ms": 10})
consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
while left > 0:
    messages = consumer.consume(500, 1.0)
    for message in messages:
        sample = decode(message.value())
        if ids:
            if sample.id in seen:
                continue
            seen.add(sample.id)
        n, total = sums.get(sample.agent, (0, 0.0))
        sums[sample.agent] = n + 1, total + sample.value
    left -= len(messages)
producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
for number, (agent, (n, total)) in enumerate(sums.items()):
    producer.produce(sys.argv[5], msgspec.json.encode(Mean(agent, n, total / n)), key=agent)
    if number % 10_000 == 0:
        producer.poll(0)
producer.flush()
"""

PATHWAY = """
import sys
import pathway as pw
class Sample(pw.Schema):
    agent: str
    value: float
    time: str
    id: str
address, topic = sys.argv[1:3]
settings = {"bootstrap.servers": address, "group.id": "pathway", "auto.offset.reset": "earliest"}
samples = pw.io.kafka.read(settings, topic, schema=Sample, format="json", mode="static")
means = samples.groupby(samples.agent).reduce(samples.agent, n=pw.reducers.count(), mean=pw.reducers.avg(samples.value))
pw.io.csv.write(means, sys.argv[5])
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
"""

BYTEWAX = """
import sys
import msgspec
from bytewax import operators as op
from bytewax.connectors.files import FileSink
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main
class Sample(msgspec.Struct):
    agent: str
    value: float
    time: str
    id: str
decode = msgspec.json.Decoder(Sample).decode
def pair(message):
    sample = decode(message.value)
    return sample.agent, (1, sample.value)
address, topic = sys.argv[1:3]
flow = Dataflow("means")
pairs = op.map("decode", op.input("read", flow, KafkaSource([address], [topic], tail=False)), pair)
sums = op.reduce_final("sum", pairs, lambda a, b: (a[0] + b[0], a[1] + b[1]))
lines = op.map("mean", sums, lambda one: (one[0], f"{one[0]},{one[1][0]},{one[1][1] / one[1][0]}"))
op.output("write", lines, FileSink(sys.argv[5]))
run_main(flow)
"""

QUIX = """
import sys, tempfile
from quixstreams import Application
address, topic, events = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = Application(broker_address=address, consumer_group=tempfile.mkdtemp()[-8:], auto_offset_reset="earliest",
                  state_dir=sys.argv[5], loglevel="ERROR", use_changelog_topics=False)
def mean(row, state):
    n, m = state.get("mean", default=(0, 0.0))
    n += 1
    state.set("mean", (n, m + (row["value"] - m) / n))
stream = app.dataframe(app.topic(topic, value_deserializer="json"))
stream.update(mean, stateful=True)
app.run(count=events, timeout=60)
"""

PEERS = {
    "Pathway": ("pathway==0.33.0", PATHWAY),
    "Bytewax": ("bytewax[kafka]==0.21.1 msgspec==0.21.0", BYTEWAX),
    "quixstreams": ("quixstreams==3.28.1", QUIX),
}
"""What to install, and a program of: address, topic, number of events, `ids` or `no ids`, path of
its output."""

READS = {
    ".csv": """
import sys
import pyarrow as pa
from pyarrow import csv
types = {"agent": pa.string(), "value": pa.float64(), "time": pa.timestamp("us", "UTC")}
csv.read_csv(sys.argv[1], csv.ReadOptions(use_threads=False), convert_options=csv.ConvertOptions(column_types=types))
""",
    ".parquet": """
import sys
from pyarrow import parquet
parquet.read_table(sys.argv[1], use_threads=False)
""",
}
