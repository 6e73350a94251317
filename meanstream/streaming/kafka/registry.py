"""A Schema Registry by Confluent's interface: schemas by their ids, and those of our own events."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from meanstream.operators.validation import require
from meanstream.streaming.kafka.configuration import Settings

PREFIX = "schema.registry."
"""Properties of a file of librdkafka properties that are the registry's."""
USER, TOKEN, CERTIFICATES = "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location"
SECONDS = 5.0
"""So long is waited for an answer."""
MAX_ANSWER = 4 << 20
MAX_REFERENCES = 50
FORGET_SECONDS = 30.0
"""So long it is remembered that there is no schema of an id."""
MAX_KNOWN = 10_000
"""Ids that are remembered; others are asked for again."""
COMPATIBILITY = "BACKWARD_TRANSITIVE"
"""Who reads by the newest schema of our events reads all that was ever written."""
_TYPE = "application/vnd.schemaregistry.v1+json"
_TEXT = re.compile(r"[\x20-\x7e]*")


class RegistryAwayError(RuntimeError):
    """The registry gives no answer that one can go on with; it may later. The message is one line for the user."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """What a registry says of an id.

    Attributes
    ----------
    kind : str
        AVRO, JSON, or another that nothing is read by.
    text : str
        The schema.
    references : mapping of str to str
        Schemas of types that it uses, by their names.
    """

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A registry elsewhere would be told the password."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class SchemaRegistry:
    """Asks a registry; what it answers is bounded, and believed of nothing but schemas.

    Parameters
    ----------
    address : str
        `http://HOST:PORT`, or https, and a path where there is one.
    settings : tuple of pairs
        `basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`.

    Raises
    ------
    ValueError
        If the address or a property is none.
    """

    def __init__(self, address: str, settings: Settings = ()) -> None:
        self.address = registry_address(address)
        given = {name.removeprefix(PREFIX): value for name, value in settings}
        unknown = sorted(set(given) - {USER, TOKEN, CERTIFICATES})
        require(not unknown, "config", f"have {PREFIX}{USER}, {TOKEN} or {CERTIFICATES} only", unknown[:1])
        self._headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE, **_credentials(given)}
        handlers: list[Any] = [_NoRedirect(), urllib.request.ProxyHandler({})]
        if CERTIFICATES in given:
            handlers.append(urllib.request.HTTPSHandler(context=_certificates(given[CERTIFICATES])))
        self._opener = urllib.request.build_opener(*handlers)
        self._known: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, float] = {}

    @classmethod
    def answering(cls, address: str, settings: Settings = ()) -> Self:
        """Make one that answers.

        Raises
        ------
        ValueError
            If it does not.
        """
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
        """Give the schema of an id; None if there is none.

        Raises
        ------
        RegistryAwayError
            If the registry cannot say.
        """
        if number in self._known:
            return self._known[number]
        if time.monotonic() < self._missing.get(number, 0.0):
            return None
        answer = self._ask("GET", f"/schemas/ids/{number}")
        if answer is None:
            if len(self._missing) >= MAX_KNOWN:
                self._missing.clear()
            self._missing[number] = time.monotonic() + FORGET_SECONDS
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[number] = self._read(answer)
        return self._known[number]

    def register(self, subject: str, schema: str) -> int:
        """Register a JSON schema of our events under a subject that stays readable for ever; give its id.

        Raises
        ------
        RegistryAwayError
            If the registry does not answer.
        ValueError
            If it refuses: what stands there under this subject is another schema.
        """
        place = quote(subject, safe="")
        self._ask("PUT", f"/config/{place}", {"compatibility": COMPATIBILITY})
        answer = self._ask("POST", f"/subjects/{place}/versions", {"schemaType": "JSON", "schema": schema})
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**32:
            self._refuse("no id for a schema")
        return number

    def _read(self, answer: Any) -> RegisteredSchema:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            return RegisteredSchema("", "")
        references: dict[str, str] = {}
        self._follow(answer.get("references"), references)
        return RegisteredSchema(str(answer.get("schemaType") or "AVRO"), answer["schema"], references)

    def _follow(self, several: Any, into: dict[str, str]) -> None:
        """Read the schemas that a schema refers to, the innermost first."""
        for one in several if isinstance(several, list) else ():
            name, subject, version = (one.get(key) if isinstance(one, dict) else None for key in _REFERENCE)
            if not (isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)):
                continue
            if name in into or len(into) >= MAX_REFERENCES:
                continue
            into[name] = ""  # it is being read: a circle ends here
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if isinstance(answer, dict) and isinstance(answer.get("schema"), str):
                self._follow(answer.get("references"), into)
                into[name] = into.pop(name) or answer["schema"]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask once, and once more where the connection broke; None where there is no such thing."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, self._headers, method=method)  # noqa: S310 - http
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                text = answer.read(MAX_ANSWER + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404 and method == "GET":
                return None
            if method != "GET" and error.code in (409, 422):
                raise ValueError(
                    f"registry must take the schema of our events, got HTTP {error.code} from {self.address}: another "
                    "schema stands there"
                ) from None
            self._refuse(f"HTTP {error.code}")
        except (OSError, ValueError, urllib.error.URLError) as error:
            self._refuse(_why(error))
        except Exception as error:  # http.client has errors of its own
            self._refuse(type(error).__name__)
        if len(text) > MAX_ANSWER:
            self._refuse(f"more than {MAX_ANSWER} bytes")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self._refuse("an answer that is no JSON")

    def _refuse(self, got: str) -> NoReturn:
        raise RegistryAwayError(f"registry must answer at {self.address}, got {got}")


_REFERENCE = ("name", "subject", "version")


def registry_address(text: str) -> str:
    """Check the address of a registry.

    Raises
    ------
    ValueError
        If it is none, or holds a password.

    Examples
    --------
    >>> registry_address("http://127.0.0.1:8081/")
    'http://127.0.0.1:8081'
    """
    found = urlsplit(text)
    if "@" in found.netloc:
        raise ValueError(
            f"registry must be an address, got a user or password before it: use {PREFIX}{USER} in config="
        )
    good = found.scheme in ("http", "https") and bool(found.hostname) and not (found.query or found.fragment)
    require(good and _TEXT.fullmatch(text) is not None, "registry", "be http://HOST:PORT or https://HOST:PORT", text)
    try:
        found.port  # noqa: B018 - it says whether it is a number
    except ValueError:
        require(False, "registry", "be http://HOST:PORT or https://HOST:PORT", text)
    return text.rstrip("/")


def _credentials(given: Mapping[str, str]) -> dict[str, str]:
    require(not (USER in given and TOKEN in given), "config", f"have {USER} or {TOKEN}, not both", "both")
    for name in (USER, TOKEN):
        require(_TEXT.fullmatch(given.get(name, "")) is not None, PREFIX + name, "be visible characters", "others")
    if USER in given:
        require(":" in given[USER], PREFIX + USER, "be USER:PASSWORD", "another text")
        return {"Authorization": "Basic " + base64.b64encode(given[USER].encode()).decode()}
    return {"Authorization": f"Bearer {given[TOKEN]}"} if TOKEN in given else {}


def _certificates(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError(
            f"{PREFIX}{CERTIFICATES} must be a file of certificates, got {path!r} ({_why(error)})"
        ) from None


def _why(error: Exception) -> str:
    """Say why without an answer's text."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return type(error).__name__
