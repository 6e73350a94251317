"""`run agents --shards`: one command, a process for each group of partitions of a topic."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from meanstream.operators.validation import require
from meanstream.pipelines.commands.run.checks import check_agents_options, check_metrics_addresses
from meanstream.pipelines.commands.run.opening import opening_stack
from meanstream.pipelines.commands.run.progress_line import wait_for_brokers
from meanstream.pipelines.commands.run.run_logs import LOGGER, logging_to_stderr
from meanstream.pipelines.commands.run.watching import STORE, serve_answers
from meanstream.pipelines.options.agents_options import PAIRWISE, AgentsOptions
from meanstream.pipelines.options.base import OPTION_OF, print_options_json
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.streaming.kafka.connection.kafka_location import (
    MAX_SHARDS,
    KafkaLocation,
    is_kafka_location,
    parse_shard,
)
from meanstream.streaming.own_paths import shard_stores
from meanstream.streaming.store.deployment_store import SHARDS
from meanstream.streaming.store.secret_source import is_named_secret, make_secret, secret_path
from meanstream.streaming.store.state_store import Store, StoreError

AUTO = "auto"
PLACE = "{shard}"
"""Stands for the number of a shard in the name of a file."""
_LOOKS = 0.1
"""Seconds between two looks at the processes."""
_ONE_PROCESS = (
    "be left out with several shards: `meanstream report` draws all of them from the folder of "
    "stores while they run, and --metrics has the series of each"
)

_log = logging.getLogger(f"{LOGGER}.shards")


def one_shard(options: AgentsOptions) -> AgentsOptions:
    """Give the options of a plain engine for a shard that `--shards K/N` names.

    Without shards the options are returned as they are.
    """
    if options.shards is None or "/" not in options.shards:
        return options

    with refusing_options():
        number, count = parse_shard("shards", options.shards)
        _check_shards(options)
        return _as_shard(options, number, count)


def _as_shard(options: AgentsOptions, number: int, count: int) -> AgentsOptions:
    folder = options.store
    source = str(options.source)
    joined = "&" if "?" in source else "?"
    secret = options.secret_file
    if secret is None and not is_named_secret(os.environ):
        secret = _secret_of_shards(folder)

    def own(place: str | None) -> str | None:
        return place if place is None else place.replace(PLACE, str(number))

    figures = own(None if options.private_figures is None else str(options.private_figures))
    return replace(
        options,
        source=f"{source}{joined}partitions={number}/{count}",
        store=folder / f"{number}.db",
        secret_file=secret,
        sink=str(own(options.sink)),
        releases=own(options.releases),
        population=own(options.population),
        dead_letters=own(options.dead_letters),
        notices=own(options.notices),
        private_figures=None if figures is None else Path(figures),
    )


def _secret_of_shards(folder: Path) -> Path:
    return secret_path(folder / "shards")


def _check_shards(options: AgentsOptions) -> None:
    """Refuse what shards cannot do with."""
    source = str(options.source)
    topic = is_kafka_location(source)
    require(topic, "source", "be a topic (kafka://...) with --shards", source)
    location = KafkaLocation.parse(source, several=True)
    rule = "be one topic without partitions= with --shards, which gives each shard its own"
    require(not location.is_part and len(location.each()) == 1, "source", rule, source)

    rule = "be given with --shards, since all shards are one deployment"
    require(options.name is not None, "name", rule, options.name)
    pairs = options.schedule in PAIRWISE
    rule = "be one of releases that everyone reads, with --shards"
    require(not pairs, "schedule", rule, options.schedule)

    # Two processes cannot write one file.
    figures = {"private_figures": options.private_figures}
    for role, place in {**options.sinks, **figures}.items():
        alone = place is None or is_kafka_location(str(place)) or PLACE in str(place)
        rule = f"be a topic, or have {PLACE} in its name, with --shards: each shard writes its own"
        require(alone, OPTION_OF.get(role, role), rule, str(place))


def run_shards(options: AgentsOptions) -> None:
    """Run all shards until they end, one fails, or a signal comes; end as they do."""
    with refusing_options():
        _check_shards(options)
        check_metrics_addresses(options)
        require(options.page is None, "page", _ONE_PROCESS, options.page)
        rule = "be left out with --shards N: add it to --shards K/N"
        require(not options.dry_run, "dry_run", rule, options.dry_run)

    with logging_to_stderr(options.log_format, quiet=options.quiet), opening_stack() as opening:
        opened, stop = opening
        count = _count(options, stop)
        with _folder_of_stores(options, count):
            code = _Shards(options, count).run(opened, stop)

    if code:
        sys.exit(code)


def _count(options: AgentsOptions, stop: Callable[[], bool]) -> int:
    """Give the number of shards: as asked, and as the stores have it that are there."""
    with refusing_options():
        asked = str(options.shards)
        if asked != AUTO:
            good = asked.isdecimal() and 1 <= int(asked) <= MAX_SHARDS
            rule = f"be {AUTO}, a number from 1 to {MAX_SHARDS}, or K/N for one of them"
            require(good, "shards", rule, asked)

        known = _known_count(options.store)
        if asked == AUTO:
            return known or _suitable_count(options, stop)

        rule = (
            f"be {known}, as when the stores in {str(options.store)!r} were begun, since each "
            "agent lives in one of them; another number needs a new folder, whose budget adds up"
        )
        require(known in (None, int(asked)), "shards", rule, asked)
        return int(asked)


def _known_count(folder: Path) -> int | None:
    """Read how many shards there are from the stores of a folder; None if there is none."""
    for path in shard_stores(folder):
        try:
            with Store.read(path) as store:
                known = store.state(SHARDS)
        except StoreError:  # its own process says what is wrong
            continue

        if known is not None:
            return int(known)

    return None


def _suitable_count(options: AgentsOptions, stop: Callable[[], bool]) -> int:
    """Give the greatest divisor of the number of partitions that has a processor for each shard."""
    from meanstream.streaming.kafka.connection.kafka_client import make_client_admin
    from meanstream.streaming.kafka.connection.kafka_topics import require_topic

    wait_for_brokers(options, stop=stop)
    location = KafkaLocation.parse(str(options.source))
    partitions = require_topic(make_client_admin(location), location, "READ").partitions
    processors = min(len(os.sched_getaffinity(0)), MAX_SHARDS)
    count = max(n for n in range(1, processors + 1) if partitions % n == 0)
    _log.info("shards are chosen", extra={"shards": count, "partitions": partitions})
    return count


@contextmanager
def _folder_of_stores(options: AgentsOptions, count: int) -> Iterator[None]:
    """Make the folder of the stores, and the key that all of them have.

    Take away what was made if the run has begun no store.
    """
    folder = options.store
    secret = _secret_of_shards(folder)
    made: list[Path] = []
    with refusing_options():
        require(
            folder.parent.is_dir() and (folder.is_dir() or not os.path.lexists(folder)),
            "store",
            "be a folder of stores with --shards, or a new one",
            str(folder),
        )

    try:
        with refusing_options():
            if not folder.is_dir():
                folder.mkdir(mode=0o700)
                made.append(folder)

            named = options.secret_file is not None or is_named_secret(os.environ)
            if not named and not secret.exists() and not shard_stores(folder):
                make_secret(secret)
                made.append(secret)

            check_agents_options(_as_shard(options, 0, count))

        yield
    finally:
        if not shard_stores(folder):
            _take_away(made)


def _take_away(made: Sequence[Path]) -> None:
    """Remove files and empty folders, the last one made first."""
    for path in reversed(made):
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not any(path.iterdir()):
            path.rmdir()


class _Shards:
    """The processes of all shards, and what they say."""

    def __init__(self, options: AgentsOptions, count: int) -> None:
        self._options = options
        self._count = count
        self._run = secrets.token_hex(8)
        self._children: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._output: list[bytes] = [b""] * count
        self._said: set[bytes] = set()  # refusals, each once
        self._saying = threading.Lock()
        self._urls: dict[str, list[str]] = {}  # where each shard serves the values of an option
        self._own_stores: set[int] = set()  # shards whose store is theirs

    def run(self, opened: ExitStack, stop: Callable[[], bool]) -> int:
        """Run them; give the exit code."""
        for name in ("metrics", "private_metrics"):
            if getattr(self._options, name) is not None:
                self._urls[name] = [""] * self._count
                self._serve(opened, name, self._urls[name])

        tell = self._serve_answers(opened)
        opened.callback(self._end)
        for number in range(self._count):
            self._start(number)

        code = self._watch(stop, tell)
        for reader in self._readers:
            reader.join()

        if self._options.json and not code:
            told = [json.loads(text) for text in self._output]
            print_options_json({"shards": told})

        return code

    def _start(self, number: int) -> None:
        own = [f"--shards={number}/{self._count}"]
        own += [f"--{name.replace('_', '-')}=127.0.0.1:0" for name in self._urls]

        # The same command, with the shard's own options: each may be given once.
        typed = _without(sys.argv[1:], ["shards", *self._urls])
        module = "meanstream.pipelines.commands.shard_process"
        told, channel = os.pipe()
        parent = [str(os.getpid()), self._run, str(self._count), str(channel)]
        child = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", module, *parent, *typed, *own],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to this process, which forwards it
            pass_fds=[channel],
        )
        os.close(channel)
        self._children.append(child)

        readers = (
            (self._relay, child.stderr),
            (self._keep, child.stdout),
            (self._hear, os.fdopen(told, "rb")),
        )
        for read, stream in readers:
            thread = threading.Thread(target=read, args=(number, stream), daemon=True)
            thread.start()
            self._readers.append(thread)

    def _serve_answers(self, opened: ExitStack) -> Callable[[], None] | None:
        """Answer agents of all shards at one address, where that is requested.

        Give what tells the token that is made for all.
        """
        if self._options.answers is None:
            return None

        stores = [_as_shard(self._options, k, self._count).store for k in range(self._count)]
        with refusing_options():
            return serve_answers(opened, self._options, stores)

    def _serve(self, opened: ExitStack, name: str, urls: Sequence[str]) -> None:
        """Serve the metrics of all shards at one address."""
        from meanstream.streaming.metrics.metrics_server import MetricsServer
        from meanstream.streaming.metrics.shard_metrics import ShardHealth, ShardMetrics

        address = str(getattr(self._options, name))
        with refusing_options():
            shown = ShardMetrics(urls, private=name == "private_metrics")
            server = MetricsServer(address, shown, ShardHealth(urls), option=name)

        opened.enter_context(server)
        _log.info(f"{name.replace('_', ' ')} are served", extra={"url": f"{server.url}/metrics"})

    def _watch(self, stop: Callable[[], bool], tell: Callable[[], None] | None) -> int:
        """Wait until all have ended; if one ends by itself before its source does, so do all.

        Tell where answers are, once all stores are this run's own.
        """
        code = 0
        stopped = False
        while True:
            codes = [child.poll() for child in self._children]
            ended = [status for status in codes if status is not None]
            failed = [status for status in ended if status]
            if failed and not code:
                code = failed[0] if failed[0] > 0 else 128 - failed[0]

            gone = ended if not self._options.until_end else failed
            if (gone or stop()) and not stopped:
                stopped = True
                self._forward(signal.SIGTERM)

            if tell is not None and len(self._own_stores) == self._count:
                tell()
                tell = None

            if len(ended) == len(codes):
                return code
            time.sleep(_LOOKS)

    def _forward(self, number: int) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)

    def _end(self) -> None:
        """Leave no process behind."""
        self._forward(signal.SIGTERM)
        for child in self._children:
            child.wait()

    def _relay(self, number: int, stream: IO[bytes]) -> None:
        """Write the log lines of a shard with its number; a refusal of all shards once."""
        for line in stream:
            with self._saying:
                if line.startswith(b"meanstream: "):
                    if line in self._said:
                        continue

                    self._said.add(line)
                    shown = line
                elif line.startswith(b"{"):
                    shown = b'{"shard": %d, ' % number + line[1:]
                else:
                    shown = b"[%d] " % number + line

                sys.stderr.buffer.write(shown)
                sys.stderr.buffer.flush()

    def _keep(self, number: int, stream: IO[bytes]) -> None:
        """Keep what a shard writes to standard output: its summary as JSON."""
        self._output[number] = stream.read()

    def _hear(self, number: int, stream: IO[bytes]) -> None:
        """Note where a shard serves its metrics, and that its store is its own."""
        with stream:
            for line in stream:
                what, _, text = line.decode().rstrip("\n").partition(" ")
                if what == STORE:
                    self._own_stores.add(number)
                else:
                    self._urls[what][number] = text


def _without(typed: Sequence[str], options: Sequence[str]) -> list[str]:
    """Leave options and their values out of a command line.

    Examples
    --------
    >>> _without(["run", "--shards", "2", "--quiet", "--metrics=:0"], ["shards", "metrics"])
    ['run', '--quiet']
    """
    flags = {f"--{name.replace('_', '-')}" for name in options}
    rest: list[str] = []
    words = iter(typed)
    for word in words:
        if word in flags:
            next(words, None)  # its value
        elif word.partition("=")[0] not in flags:
            rest.append(word)

    return rest
