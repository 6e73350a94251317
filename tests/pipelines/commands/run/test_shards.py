"""`--shards`: what is refused before a process starts, what each shard is given, and one address for
the metrics of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.commands.run import shards, signals
from meanstream.pipelines.commands.run.shards import one_shard
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.metrics.metrics_server import MetricsServer
from meanstream.streaming.metrics.shard_metrics import ShardHealth, ShardMetrics
from meanstream.streaming.own_paths import stores_at
from meanstream.streaming.store.deployment_store import keep_shard_count
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, arguments, meanstream, options
from tests.servers.test_start import ask

SOURCE = "kafka://127.0.0.1:1/samples"


def typed(folder: Path, **changes: Any) -> list[str]:
    changed = {
        "source": SOURCE,
        "store": folder / "stores",
        "sink": folder / "estimates-{shard}.jsonl",
        "releases": folder / "releases-{shard}.jsonl",
        "shards": 2,
        **changes,
    }
    return ["run", "agents", *arguments(options(folder, **changed))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": "0"}, "shards must be auto, a number from 1 to 1024, or K/N for one of them"),
        ({"shards": "many"}, "shards must be auto, a number from 1 to 1024"),
        ({"shards": "2/2"}, "shards must be K/N with K from 0 to N - 1, got '2/2'"),
        ({"source": "a.csv"}, "source must be a topic (kafka://...) with --shards, got 'a.csv'"),
        ({"source": f"{SOURCE},more"}, "source must be one topic without partitions= with"),
        ({"source": f"{SOURCE}?partitions=0"}, "source must be one topic without partitions="),
        ({"name": None}, "name must be given with --shards, since all shards are one deployment"),
        ({"sink": "-"}, "sink must be a topic, or have {shard} in its name, with --shards"),
        ({"releases": "r.jsonl"}, "releases must be a topic, or have {shard} in its name"),
        ({"private_figures": "f.json"}, "private_figures must be a topic, or have {shard} in"),
        ({"page": "127.0.0.1:0"}, "page must be left out with several shards"),
        ({"answers": "9464"}, "answers must be HOST:PORT"),
        ({"dry_run": True}, "dry_run must be left out with --shards N: add it to --shards K/N"),
        ({"metrics": "9464"}, "metrics must be HOST:PORT"),
        ({"schedule": "round_robin"}, "schedule must be one of releases that everyone reads"),
        ({"runner": "FnApiRunner"}, "shards"),
        ({"lower": 200}, "lower must be below upper"),
    ],
)
def test_what_shards_cannot_do_with_is_refused_in_one_line_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    ran = meanstream(*typed(tmp_path, **changes), environment={"MEANSTREAM_SECRET": SECRET})
    assert message in ran.message
    assert not list(tmp_path.iterdir())


def test_a_shard_has_partitions_a_store_a_key_and_files_of_its_own(tmp_path: Path) -> None:
    given = AgentsOptions(
        source=f"{SOURCE}?group=g",
        store=tmp_path,
        shards="1/4",
        name="n",
        sink="e-{shard}.jsonl",
        releases="kafka://127.0.0.1:1/releases",
    )
    shard = one_shard(given)
    location = KafkaLocation.parse(str(shard.source))
    assert list(location.own_partitions(12)) == [1, 5, 9]
    assert (shard.store, shard.secret_file) == (tmp_path / "1.db", tmp_path / "shards.secret")
    assert (shard.sink, shard.releases) == ("e-1.jsonl", given.releases)


def test_each_key_keeps_its_shard_for_any_multiple_of_their_number() -> None:
    """The remainder of a hash modulo the partitions, and of that modulo the shards."""
    for shards_there in (1, 2, 3, 4):
        for partitions in (shards_there, 2 * shards_there, 3 * shards_there):
            owner = {}
            for number in range(shards_there):
                location = KafkaLocation.parse(f"{SOURCE}?partitions={number}/{shards_there}")
                location.require_partitions(partitions)
                owner |= dict.fromkeys(location.own_partitions(partitions), number)
            assert all(owner[key % partitions] == key % shards_there for key in range(100))

    with pytest.raises(ValueError, match="shards must be a number that divides the 5 partitions"):
        KafkaLocation.parse(f"{SOURCE}?partitions=0/2").require_partitions(5)


def test_the_number_of_shards_is_that_of_the_stores_that_are_there(tmp_path: Path) -> None:
    given = AgentsOptions(source=SOURCE, store=tmp_path, shards="auto", name="n")
    store = Store.open(tmp_path / "0.db", settings={"epsilon": 1.0}, secret=SECRET.encode())
    keep_shard_count(store, 3)
    keep_shard_count(store, 3)
    with pytest.raises(ValueError, match="shards must be 3 as in the store that is continued"):
        keep_shard_count(store, 2)
    store.close()
    assert shards._count(given, lambda: False) == 3
    other = AgentsOptions(source=SOURCE, store=tmp_path, shards="2", name="n")
    with pytest.raises(BadOption, match="shards must be 3, as when the stores in"):
        shards._count(other, lambda: False)
    assert stores_at(tmp_path) == [tmp_path / "0.db"]
    with pytest.raises(ValueError, match="store must be a store, or the folder of a run with"):
        stores_at(tmp_path.parent)


def test_a_process_ends_when_the_one_that_started_it_is_gone() -> None:
    parent = signals.Parent(1 << 30, "run", 2, -1)
    assert parent.gone
    assert signals.followed_parent() is None


class _Engine:
    """The metrics and the health of one."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.problem: str | None = None

    def application(self) -> Callable[..., Any]:
        def answer(_: Any, start_response: Callable[..., Any]) -> list[bytes]:
            start_response("200 OK", [("Content-Type", "text/plain")])
            text = f"# HELP events_total Events.\n# TYPE events_total counter\nevents_total {self.events}\n"
            return [text.encode()]

        return answer

    def not_alive(self) -> str | None:
        return None

    def not_ready(self) -> str | None:
        return self.problem


def test_metrics_and_probes_of_all_shards_are_at_one_address() -> None:
    engines = [_Engine(3), _Engine(4)]
    first, second = (MetricsServer("127.0.0.1:0", engine, engine) for engine in engines)
    with first, second:
        urls = [first.url, second.url]
        with MetricsServer("127.0.0.1:0", ShardMetrics(urls), ShardHealth(urls)) as server:
            address = server.url.removeprefix("http://")
            shown = ask(address, "/metrics")[1].splitlines()
            assert shown == [
                "# HELP events_total Events.",
                "# TYPE events_total counter",
                'events_total{shard="0"} 3.0',
                'events_total{shard="1"} 4.0',
            ]
            assert ask(address, "/readyz") == (200, "ok")
            engines[1].problem = "its brokers are away"
            assert ask(address, "/readyz") == (503, "shard 1: its brokers are away")
            second.close()
            assert ask(address, "/healthz") == (503, "shard 1: the process does not answer")
            left = ask(address, "/metrics")[1].splitlines()
            assert [line for line in left if 'shard="1"' in line] == [
                'meanstream_ready{shard="1"} 0.0'
            ]
            # None has said where it serves.
            urls[:] = ["", ""]
            assert ask(address, "/readyz") == (503, "shard 0: the process has not begun")
            assert ask(address, "/metrics") == (503, "no shard answers")
