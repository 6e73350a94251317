"""What a store is filled from.

Topic and cluster or file, columns, lateness; another one is refused, or adopted.

**Privacy.** A position in one source means nothing in another, and samples of another column are other data: both would
be released under the ids, and on top of the sums, of the first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meanstream.operators.durations import duration_text
from meanstream.streaming.events.event_columns import topics_joined
from meanstream.streaming.store.state_store import Store, StoreError

_STATE = "source"
_ADOPTIONS = "adoptions"
_ADOPTED = "adopted"
OLDER_COPY = "older_copy"
"""State that lets the next run, and no other, go on next to releases that the store does not
know."""

SourceIdentity = dict[str, Any]
"""Option and value of what a store is filled from: `source`, `cluster`, columns, lateness; None is
not known yet."""

LATENESS = ("lateness", "allowed_lateness")
ADOPTABLE = ("source", "agent", "user", "value", "time", "id", "person", *LATENESS)
"""What `meanstream store adopt` changes."""

ENGINES = ("engine", "rounds")
"""States of engines, with the positions in the sources that they have read."""


def source_identity_of(store: Store) -> SourceIdentity | None:
    """Tell what a store is filled from; None if no run has said so yet."""
    identity = store.state(_STATE)

    if identity is None:
        return None
    return dict(identity)


def saved_lateness(path: Path, option: str) -> float | None:
    """Give the lateness that a store was begun with, in seconds.

    None if no engine has begun one there.
    """
    if not path.is_file() or not path.stat().st_size:
        return None

    try:
        with Store.read(path) as store:
            noted = (source_identity_of(store) or {}).get(option)
    except StoreError:  # anyone who opens it for writing says what is wrong
        return None

    if noted is None:
        return None
    return float(noted)


def require_source_identity(
    store: Store, found: Mapping[str, Any], *, address: str | None = None
) -> None:
    """Refuse another source than the store is filled from, before anything is read.

    Nothing is written.
    """
    saved = source_identity_of(store) or {}
    adopted = saved.pop(_ADOPTED, {})
    if found["source"] in adopted:
        saved |= {"source": found["source"], "cluster": adopted[found["source"]]}

    for option, value in found.items():
        saved_value = saved.get(option, value)
        if saved_value != value and not (option == "cluster" and saved_value is None):
            shown = [_typed(option, shown_value) for shown_value in (saved_value, value)]
            way = _way_out(store, option, address if option == "source" and address else shown[1])
            raise StoreError(
                f"{option} must be {_quoted(option, shown[0])} as in the store that is continued, got "
                f"{_quoted(option, shown[1])}: {way}"
            )


def _typed(option: str, value: Any) -> Any:
    """Give a value as it is typed."""
    return (
        (duration_text(value) if value else "0s")
        if option in LATENESS and value is not None
        else value
    )


def _quoted(option: str, value: Any) -> str:
    if option in LATENESS:
        return str(value)
    return repr(value)


def _way_out(store: Store, option: str, value: Any) -> str:
    """Say what to do: the command that says it is the same data under another name, where there is one."""
    another = "other data need another --store, which has a budget of its own"
    if option not in ADOPTABLE or value is None:
        return another
    words = [
        "meanstream",
        "store",
        "adopt",
        "--store",
        str(store.path),
        f"--{option.replace('_', '-')}",
        str(value),
    ]
    why = "to change it" if option in LATENESS else f"{another}; if it is the same data"

    return f"{why}: {shlex.join(words)}"


def keep_source_identity(store: Store, found: Mapping[str, Any]) -> None:
    """Note what a store is filled from, once `require_source_identity` has taken it."""
    saved = source_identity_of(store) or dict(found)
    adopted = saved.pop(_ADOPTED, {})
    if found["source"] in adopted:
        adopted = {**adopted, found["source"]: found["cluster"]}
        new = saved
    else:
        new = {**saved, **found}

    if adopted:
        new = {**new, _ADOPTED: adopted}

    if source_identity_of(store) != new:
        with store.transaction():
            store.put_state(_STATE, new)


def keep_source_identity_in(store: Store, found: Mapping[str, Any]) -> None:
    """Note within a transaction what a store is filled from that goes on where another one was."""
    if source_identity_of(store) is None:
        store.put_state(_STATE, dict(found))


def adopt_source_identity(store: Store, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change what a store is filled from, and record it for good; give the record."""
    saved = source_identity_of(store)
    if saved is None:
        raise StoreError(f"store must have been filled by a run, got {str(store.path)!r}")
    unknown = sorted(set(changes) - set(saved))

    if unknown:
        rule = f"be left out for a store whose options are {', '.join(saved)}"
        raise StoreError(f"{unknown[0]} must {rule}, got {changes[unknown[0]]!r}")

    new = {option: value for option, value in changes.items() if saved[option] != value}
    if not new:
        raise StoreError(f"store must be given something else than it has, got {dict(changes)!r}")
    before = {option: saved[option] for option in new}
    adopted = dict(saved.get(_ADOPTED, {}))

    if "source" in new:
        if saved["cluster"] is not None:
            _require_new_topics(new["source"], [saved["source"], *adopted])

        adopted.setdefault(new["source"], None)

    columns = {option: value for option, value in new.items() if option != "source"}
    with store.transaction():
        store.put_state(_STATE, {**saved, **columns, **({_ADOPTED: adopted} if adopted else {})})
        return _record(store, {"from": before, "to": new})


def _require_new_topics(source: str, known: Iterable[str]) -> None:
    """Refuse a topic that the store has read among others, or alone.

    Its samples would count twice.
    """
    read = {topic for name in known if name != source for topic in topics_joined(name)}
    for topic in topics_joined(source):
        if topic in read:
            raise StoreError(
                f"source must be topics that the store does not read already, got {topic!r} in {source!r}"
            )


def adopt_source_identity_of_copy(store: Store) -> dict[str, Any]:
    """Let the next run go on from an older copy next to newer releases, once, and record it.

    Give the record.

    **Privacy.** On the input that it had read from, the copy repeats what was released, to the byte. On another input
    it would release a second value under the same ids. A store that never released anything is no older copy but a new
    one: it would release everything a second time.
    """
    if not store.ledger.rows():
        raise StoreError(
            f"store must have released something to be an older copy, got a new one in {str(store.path)!r}: put the "
            "newest copy back, or begin where nothing was released"
        )

    with store.transaction():
        store.put_state(OLDER_COPY, True)
        return _record(store, {"older_copy": True, "commits": store.commits()})


def _record(store: Store, what: dict[str, Any]) -> dict[str, Any]:
    record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **what}
    store.put_state(_ADOPTIONS, [*source_identity_adoptions(store), record])
    return record


def source_identity_adoptions(store: Store) -> list[dict[str, Any]]:
    """List what was ever adopted, the oldest first."""
    return list(store.state(_ADOPTIONS) or ())
