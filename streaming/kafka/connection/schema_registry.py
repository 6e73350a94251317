"""A Schema Registry by Confluent's interface: schemas by their ids, and those of our own events."""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from meanstream.operators.validation import require
from meanstream.streaming.kafka.connection.kafka_configuration import Settings

MAX_MISSES = 100
"""So many ids without a schema are requested in a while."""

_log = logging.getLogger("meanstream.kafka")


class SchemaMisses:
    """Counts ids without a schema that were requested of late, and how long the answers took.

    Parameters
    ----------
    while_seconds : float
        So long a while is.
    most_seconds : float
        So long all answers of a while may take, up to the one that is under way.

    Examples
    --------
    >>> misses = SchemaMisses(30.0, 5.0)
    >>> for _ in range(4):
    ...     misses.note(1.0)
    >>> misses.too_many(7.0), misses.note(1.0), misses.too_many(8.0), misses.too_many(37.0)
    (False, None, True, False)
    """

    def __init__(self, while_seconds: float, most_seconds: float) -> None:
        self._while = while_seconds
        self._most = most_seconds
        self._until = 0.0
        self._count = 0
        self._seconds = 0.0
        self._told = False

    def too_many(self, now: float) -> bool:
        """Tell whether no further id is requested.

        Says so once in a while, which ends by itself.
        """
        if self._until and now >= self._until:
            self._until = 0.0
            self._count = 0
            self._seconds = 0.0
            self._told = False

        self._until = self._until or now + self._while
        if self._count < MAX_MISSES and self._seconds < self._most:
            return False

        if not self._told:
            _log.warning(
                "the registry has no schema of the last %d new ids: for %.0f s further new ids are not looked up, "
                "and their records are rejected (unknown_schema)",
                self._count,
                self._until - now,
            )

        self._told = True
        return True

    def note(self, seconds: float) -> None:
        """Count an id without a schema, and how long the answer took."""
        self._count, self._seconds = self._count + 1, self._seconds + seconds


PREFIX = "schema.registry."
"""Properties of a file of librdkafka properties that are the registry's."""
USER = "basic.auth.user.info"
TOKEN = "bearer.auth.token"  # noqa: S105
CERTIFICATES = "ssl.ca.location"
SECONDS = 5.0
"""So long is waited for a whole answer."""
MAX_ANSWER = 4 << 20
"""Bytes of an answer; characters of a schema with all that it refers to."""
MAX_TEXT = 64 << 20
"""Characters of all schemas that are remembered."""
MAX_REFERENCES = 50
FORGET_SECONDS = 30.0
"""So long it is remembered that there is no schema of an id."""
MAX_KNOWN = 10_000
"""Ids that are remembered; others are requested again."""
MAX_FAMILIAR = 1_000
"""Ids that a store keeps as those of schemas."""
COMPATIBILITY = "BACKWARD_TRANSITIVE"
"""Who reads by the newest schema of our events reads all that was ever written."""
_TYPE = "application/vnd.schemaregistry.v1+json"
_TEXT = re.compile(r"[\x20-\x7e]*")
_ADDRESS = re.compile(r"[\x21-\x7e]+")


class RegistryAwayError(RuntimeError):
    """The registry gives no answer that one can go on with; it may later.

    The message is one line for the user.
    """


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """What a registry says of an id.

    Attributes
    ----------
    kind : str
        AVRO, JSON, or another that nothing is read by.
    text : str
        The schema; only of AVRO.
    references : mapping of str to str
        Schemas of types that it uses, by their names.
    """

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)

    @property
    def characters(self) -> int:
        """How much text it is."""
        return len(self.text) + sum(map(len, self.references.values()))


class SchemaRegistry:
    """Asks a registry; what it answers is bounded, and believed of nothing but schemas.

    No other address is gone to: a registry elsewhere would be told the password.

    Parameters
    ----------
    address : str
        `http://HOST:PORT`, or https, and a path where there is one.
    settings : tuple of pairs
        `basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`.
    """

    def __init__(self, address: str, settings: Settings = ()) -> None:
        self.address = registry_address(address)

        # Options of the registry are told from those of the client by their prefix.
        options = {name.removeprefix(PREFIX): value for name, value in settings}
        unknown = sorted(set(options) - {USER, TOKEN, CERTIFICATES})
        require(
            not unknown,
            "config",
            f"have {PREFIX}{USER}, {TOKEN} or {CERTIFICATES} only",
            unknown[:1],
        )

        self._headers = {
            "Accept": f"{_TYPE}, application/json",
            "Content-Type": _TYPE,
            **_credentials(options),
        }

        # Certificates of the system, or those that were named.
        self._context = (
            _certificates(options[CERTIFICATES])
            if CERTIFICATES in options
            else ssl.create_default_context()
        )
        self._known: dict[int, RegisteredSchema] = {}
        self._characters = 0  # of all that are known

        self._missing: dict[int, float] = {}
        self.familiar: set[int] = set()
        """Ids that had a schema: they are requested whatever else comes; a store keeps them."""
        self.subjects: tuple[str, ...] = ()
        """Whose schemas are looked up where too many ids had none: those of the topic itself."""
        self._learned: set[tuple[str, int]] = set()  # versions of subjects
        self._learn_after = 0.0
        self._misses = SchemaMisses(FORGET_SECONDS, SECONDS)

    @classmethod
    def answering(cls, address: str, settings: Settings = ()) -> Self:
        """Make one that answers."""
        registry = cls(address, settings)
        try:
            registry.check()
        except RegistryAwayError as error:
            raise ValueError(str(error)) from None

        return registry

    def check(self) -> None:
        """Ask for something that every registry has; `RegistryAwayError` if it does not answer."""
        if not isinstance(self._ask("GET", "/schemas/types"), list):
            self._refuse("an answer that is none of a registry")

    def schema(self, number: int) -> RegisteredSchema | None:
        """Give the schema of an id.

        None if there is none, or too many ids without one were requested just now.
        """
        if number in self._known:
            return self._known[number]

        # An id that had no schema a moment ago is not asked again.
        now = time.monotonic()
        if now < self._missing.get(number, 0.0):
            return None

        # Too many unknown ids: strangers may send any. The topic's own schemas are looked up by
        # name.
        if number not in self.familiar and self._misses.too_many(now):
            self._learn(now)
            return self._known.get(number)

        answer = self._ask("GET", f"/schemas/ids/{number}")

        # The memory of missing ids is bounded: it begins anew.
        if answer is None:
            if len(self._missing) >= MAX_KNOWN:
                self._missing.clear()

            self._missing[number] = time.monotonic() + FORGET_SECONDS
            self._misses.note(time.monotonic() - now)
            return None

        return self._keep(number, self._read(answer))

    def _learn(self, now: float) -> None:
        """Look up the newest schemas of the topic by its name.

        Made-up ids do not decide what becomes of others.
        """
        if now < self._learn_after:
            return

        # By name only the newest versions are asked for.
        for subject in self.subjects:
            versions_path = f"/subjects/{quote(subject, safe='')}/versions"
            versions = self._ask("GET", versions_path)
            for version in versions[-MAX_REFERENCES:] if isinstance(versions, list) else ():
                if isinstance(version, int) and (subject, version) not in self._learned:
                    answer = self._ask("GET", f"{versions_path}/{version}")
                    if isinstance(answer, dict) and isinstance(answer.get("id"), int):
                        self._keep(answer["id"], self._read(answer))

                    self._learned.add((subject, version))

        self._learn_after = now + SECONDS

    def _keep(self, number: int, found: RegisteredSchema) -> RegisteredSchema:
        # Schemas are remembered in bounded memory.
        if len(self._known) >= MAX_KNOWN or self._characters + found.characters > MAX_TEXT:
            self._known.clear()
            self._characters = 0

        self._known[number] = found
        self._characters += found.characters

        # Ids that had a schema are never refused again, whatever else comes.
        if len(self.familiar) < MAX_FAMILIAR:
            self.familiar.add(number)

        return found

    def register(self, subject: str, schema: str) -> int:
        """Register a JSON schema of our events under a subject that stays readable for ever.

        Give its id.
        """
        # Compatibility first, so that no later schema can break readers.
        quoted_subject = quote(subject, safe="")
        self._ask("PUT", f"/config/{quoted_subject}", {"compatibility": COMPATIBILITY})
        answer = self._ask(
            "POST", f"/subjects/{quoted_subject}/versions", {"schemaType": "JSON", "schema": schema}
        )
        number = answer.get("id") if isinstance(answer, dict) else None

        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**32:
            self._refuse("no id for a schema")

        return number

    def _read(self, answer: Any) -> RegisteredSchema:
        # An answer that is no schema is remembered as one that decodes nothing.
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            return RegisteredSchema("", "")
        kind = str(answer.get("schemaType") or "AVRO")
        if kind != "AVRO":
            return RegisteredSchema(kind, "")

        # Only Avro needs what a schema refers to.
        references: dict[str, str] = {}
        self._follow(answer.get("references"), references)
        return RegisteredSchema(kind, answer["schema"], references)

    def _follow(self, several: Any, into: dict[str, str]) -> None:
        """Read the schemas that a schema refers to, the innermost first."""
        for reference in several if isinstance(several, list) else ():
            name, subject, version = (
                reference.get(key) if isinstance(reference, dict) else None for key in _REFERENCE
            )
            if not (
                isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)
            ):
                continue

            # References may be circles, or too many: a reader must end.
            if (
                name in into
                or len(into) >= MAX_REFERENCES
                or sum(map(len, into.values())) > MAX_ANSWER
            ):
                continue

            into[name] = ""  # it is being read: a circle ends here
            quoted_subject = quote(subject, safe="", errors="replace")
            answer = self._ask("GET", f"/subjects/{quoted_subject}/versions/{version}")
            if isinstance(answer, dict) and isinstance(answer.get("schema"), str):
                self._follow(answer.get("references"), into)
                into[name] = into.pop(name) or answer["schema"]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask once; None where there is no such thing."""
        try:
            status, text = self._answer(
                method, path, None if body is None else json.dumps(body).encode()
            )
        except (OSError, ValueError, HTTPException) as error:
            self._refuse(_why(error))

        # No such thing is an answer; everything else that is not good is an outage or a refusal.
        if status == 404 and method == "GET":
            return None

        if status in (409, 422) and method != "GET":
            raise ValueError(
                f"registry must take the schema of our events, got HTTP {status} from {self.address}: another schema "
                "stands there"
            )

        if not 200 <= status < 300:
            self._refuse(f"HTTP {status}")

        if len(text) > MAX_ANSWER:
            self._refuse(f"more than {MAX_ANSWER} bytes")

        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self._refuse("an answer that is no JSON")

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Give an answer; one that comes in small pieces is no reason to wait longer."""
        # A socket of our own, so that a timer can end it whatever the answer does.
        registry_url = urlsplit(self.address)
        secret = registry_url.scheme == "https"
        host = str(registry_url.hostname)
        connection = HTTPConnection(host, registry_url.port or (443 if secret else 80))
        opened = socket.create_connection((host, connection.port), SECONDS)

        if secret:
            opened = self._context.wrap_socket(
                opened, server_hostname=host, do_handshake_on_connect=False
            )

        connection.sock = opened

        # The timer bounds the whole answer, not the pause between two pieces.
        late = threading.Event()
        clock = threading.Timer(SECONDS, _hang_up, (opened, late))
        clock.start()

        try:
            with closing(connection):
                if isinstance(opened, ssl.SSLSocket):
                    opened.do_handshake()

                connection.request(
                    method, registry_url.path + path, body, {**self._headers, "Connection": "close"}
                )

                with connection.getresponse() as answer:
                    reply = answer.status, answer.read(MAX_ANSWER + 1)
        finally:
            clock.cancel()
            if late.is_set():
                self._refuse(f"no whole answer in {SECONDS:g} s")

        return reply

    def _refuse(self, got: str) -> NoReturn:
        raise RegistryAwayError(f"registry must answer at {self.address}, got {got}")


def _hang_up(opened: socket.socket, late: threading.Event) -> None:
    """Let anyone who reads from a socket, or writes to it, find its end."""
    late.set()
    with suppress(OSError):
        socket.socket.shutdown(
            opened, socket.SHUT_RDWR
        )  # that of TLS would forget what it reads by


_REFERENCE = ("name", "subject", "version")


def registry_address(text: str) -> str:
    """Check the address of a registry.

    Examples
    --------
    >>> registry_address("http://127.0.0.1:8081/")
    'http://127.0.0.1:8081'
    """
    rule = "be http://HOST:PORT or https://HOST:PORT"
    if "@" in text:
        raise ValueError(
            f"registry must be an address, got a user or password before it: use {PREFIX}{USER} in config="
        )

    require(_ADDRESS.fullmatch(text) is not None, "registry", rule, text)

    # A port may be no number, and an address half in brackets.
    try:
        address = urlsplit(text)
        good = (
            address.scheme in ("http", "https")
            and bool(address.hostname)
            and not (address.query or address.fragment)
        )
        good = good and address.port != 0
    except ValueError:  # a port that is no number, half an address in brackets
        good = False

    require(good, "registry", rule, text)
    return text.rstrip("/")


def _credentials(given: Mapping[str, str]) -> dict[str, str]:
    # Two kinds of credentials would leave open which one counts.
    require(
        not (USER in given and TOKEN in given),
        "config",
        f"have {USER} or {TOKEN}, not both",
        "both",
    )

    for name in (USER, TOKEN):
        require(
            _TEXT.fullmatch(given.get(name, "")) is not None,
            PREFIX + name,
            "be visible characters",
            "others",
        )

    if USER in given:
        require(":" in given[USER], PREFIX + USER, "be USER:PASSWORD", "another text")
        return {"Authorization": "Basic " + base64.b64encode(given[USER].encode()).decode()}

    if TOKEN in given:
        return {"Authorization": f"Bearer {given[TOKEN]}"}
    return {}


def _certificates(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError(
            f"{PREFIX}{CERTIFICATES} must be a file of certificates, got {path!r} ({_why(error)})"
        ) from None


def _why(error: Exception) -> str:
    """Say why without an answer's text."""
    if isinstance(error, TimeoutError):
        return f"no whole answer in {SECONDS:g} s"
    return getattr(error, "strerror", None) or type(error).__name__
