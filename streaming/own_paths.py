"""Which files a command reads, owns or writes.

None that is written may be another of them, however it is spelled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from meanstream.operators.validation import require
from meanstream.streaming.store.secret_source import (
    SECRET_FILE_VARIABLE,
    SECRET_SUFFIX,
    secret_path,
)

PAGE_SUFFIX = ".page"
"""Of the file that tells the address of a running engine's page, with its token."""
COLLABORATE_PAGE_SUFFIX = ".collaborate.page"
"""The same of `run collaborate`, which may run next to the engine of the store."""

ANSWERS_SUFFIX = ".answers"
"""Of the file that tells where agents ask a running engine, with the token that opens all
answers."""

SUMMARY_SUFFIX = ".summary"
"""Of the file with what an engine's agents have released, for the deployment's other engines."""

STORE_FILES = {
    **{"-wal": "write-ahead log", "-shm": "shared memory", "-journal": "journal", ".lock": "lock"},
    PAGE_SUFFIX: "page's address",
    ANSWERS_SUFFIX: "answers' token",
    SUMMARY_SUFFIX: "summary of releases",
    COLLABORATE_PAGE_SUFFIX: "page's address of `run collaborate`",
}
"""What lies next to a store, by what follows its name."""


def shard_stores(folder: Path) -> list[Path]:
    """List the stores in the folder of a run with shards, by number; none where it is no folder.

    Examples
    --------
    >>> shard_stores(Path("no-folder"))
    []
    """
    found = [path for path in folder.glob("*.db") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem))


def stores_at(path: Path) -> list[Path]:
    """Give a store, or all stores of a folder of shards.

    Raises
    ------
    ValueError
        If a folder has none.
    """
    if not path.is_dir():
        return [path]
    stores = shard_stores(path)
    rule = "be a store, or the folder of a run with --shards"
    require(bool(stores), "store", rule, str(path))
    return stores


def own_files_of_store(store: Path) -> dict[str, Path]:
    """Name the files that belong to a store, whether or not they are there.

    Its key lies next to it by default.
    """
    require(bool(store.name), "store", "be a file", str(store))
    place = Path(os.path.realpath(store))
    beside = {
        f"the {what} of the store": place.with_name(place.name + suffix)
        for suffix, what in STORE_FILES.items()
    }

    return {"store": store, **beside, "the secret of the store": secret_path(store)}


def own_files_named(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Path]:
    """Find the files that options name, by option.

    As a path, `file:PATH`, or the `config=` of a topic's address.

    What that file names itself belongs to it: passwords (`file:PATH`), certificates, keys.
    """
    named = dict(_files_named(options))
    if environment.get(SECRET_FILE_VARIABLE):
        named["the secret"] = Path(environment[SECRET_FILE_VARIABLE])

    return named


def _files_named(options: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    for name, value in options.items():
        if not isinstance(value, str | Path):
            continue
        text = str(value)
        query = parse_qs(text.partition("?")[2]).get("config", []) if "://" in text else []

        for place in (text, text.removeprefix("file:"), *query):
            if place and _is_file(place):
                yield (name if place == text else f"the file of {name}"), Path(place)

        for config in query:
            yield from _files_of_topic(name, Path(config))


def _files_of_topic(option: str, config: Path) -> Iterator[tuple[str, Path]]:
    """Find what a topic's configuration names.

    One that does not read is refused where the topic is opened.
    """
    import yaml  # a fortieth of a start, where no one configures a topic

    from meanstream.streaming.strict_yaml import read_strict_yaml_file

    try:
        properties = read_strict_yaml_file(config)
    except (OSError, ValueError, yaml.YAMLError):
        return

    for name, value in properties.items() if isinstance(properties, dict) else ():
        if isinstance(value, str):
            place = (
                config.parent / value.removeprefix("file:")
                if value.startswith("file:")
                else Path(value)
            )

            if _is_file(place):
                yield f"the {name} of {option}", place


def require_own_paths_apart(writes: Mapping[str, Path], others: Mapping[str, Path]) -> None:
    """Refuse what is written where it is another file that is read, owned or written.

    Folders, where they hold one.
    """
    taken = dict(others)
    for option, path in writes.items():
        for name, other in taken.items():
            require(not _same_file(path, other), option, f"be another place than {name}", str(path))
            require(not _holds(path, other), option, f"be a folder without {name}", str(path))

        taken[option] = path


def require_no_store_file(option: str, path: Path) -> None:
    """Refuse a file that the store whose name begins like it would take for its own, however it is spelled."""
    place = Path(os.path.realpath(path))
    for suffix, what in {**STORE_FILES, SECRET_SUFFIX: "secret"}.items():
        store = (
            place.with_name(place.name.removesuffix(suffix))
            if place.name.endswith(suffix)
            else place
        )
        require(
            store == place or not _is_file(store),
            option,
            f"be another place than the {what} of a store",
            str(path),
        )


def _same_file(path: Path, other: Path) -> bool:
    """Say whether two paths are one file.

    By links of both kinds, or by another spelling of what is not there yet.
    """
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return os.path.realpath(path) == os.path.realpath(other)


def _holds(folder: Path, other: Path) -> bool:
    return (
        folder.suffix == ".parquet"
        and Path(os.path.realpath(folder)) in Path(os.path.realpath(other)).parents
    )


def _is_file(place: str | Path) -> bool:
    try:
        return os.path.isfile(place)
    except ValueError:  # a NUL in it
        return False
