"""Keyed noise in bulk: random bits that are a pure function of (secret, release id, input version).

A retried batch, a restored checkpoint or a replayed topic must publish the *same* noise again:
fresh noise on a retry is a second release that averages the first away. So bits are not drawn, they
are computed, by a pseudo-random function under a secret key;
`meanstream.operators.noise.distributions` turns them into noise.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from meanstream.operators.noise.distributions import (
    TAIL_DELTA,
    GaussianNoise,
    LaplaceNoise,
    NoiseDistribution,
)
from meanstream.operators.noise.key_strength import require_strong_key
from meanstream.operators.records import Ints, Words

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNSPELLED = "unspelled"
"""Metadata of a field: the value that keys do not spell, where the default is another now than when
keys were made."""


def canonical(value: Any) -> bytes:
    """Plain data as bytes: equal data, equal bytes.

    Numbers are distinguished by type, `1` from `1.0`: settings bring their fields to their declared
    types themselves.

    Examples
    --------
    >>> canonical({"upper": np.float64(120), "lower": -30.0})
    b'{"lower":-30.0,"upper":120.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def canonical_plain(value: Any) -> Any:
    """Give plain data as it is read from its canonical bytes: arrays are lists.

    Examples
    --------
    >>> canonical_plain({"found": np.array([0.1, 2.0])})
    {'found': [0.1, 2.0]}
    """
    return json.loads(canonical(value))


def canonical_spelling(settings: DataclassInstance) -> dict[str, Any]:
    """Give the fields of settings that are not at their defaults, as plain data.

    A field that is added later, with a default that changes nothing, therefore changes no key.

    Examples
    --------
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> canonical_spelling(AgentsSettings(lower=np.float64(-30), upper="120", epsilon=1, horizon=40))
    {'lower': -30.0, 'upper': 120.0, 'epsilon': 1.0, 'counter': 'pm1', 'noise': 'staircase', 'spread_share': 0.1}
    """
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    at_default = {field.name for field in fields(settings) if values[field.name] == _default(field)}
    return {name: value for name, value in values.items() if name not in at_default}


def _default(field: Any) -> Any:
    if UNSPELLED in field.metadata:
        return field.metadata[UNSPELLED]

    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"public data must be plain, got {type(value).__name__}")


__all__ = [
    "TAIL_DELTA",
    "GaussianNoise",
    "KeyedNoise",
    "LaplaceNoise",
    "NoiseDistribution",
    "NoiseIds",
    "NoiseSource",
    "keyed_owner_words",
]

MAX_DRAWS = 2**16
_BLOCK = 16
# Blocks are encrypted a chunk at a time, so that the three passes over a chunk stay in the cache.
_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class NoiseIds:
    """What identifies a draw: whose release, which one, and of which exact input.

    Attributes
    ----------
    owner : uint64 array (n, 2)
        128-bit hash of the agent or user, from `keyed_owner_words`.
    index : int64 array (n,)
        Index of the release, below 2**47.
    version : uint64 array (n,)
        Keyed digest of the input, from `NoiseSource.version_of`: another input meets other,
        independent noise, so that the difference of two releases never shows the exact difference
        of their inputs.
    """

    owner: Words
    index: Ints
    version: Words

    def __post_init__(self) -> None:
        n = len(self.index)
        if self.owner.shape != (n, 2) or self.index.shape != (n,) or self.version.shape != (n,):
            shapes = (self.owner.shape, self.index.shape, self.version.shape)
            raise ValueError(f"ids must have the shapes (n, 2), (n,), (n,), got {shapes}")

    def __len__(self) -> int:
        return len(self.index)

    def take(self, which: Ints) -> NoiseIds:
        """Select draws."""
        return NoiseIds(self.owner[which], self.index[which], self.version[which])


class NoiseSource(Protocol):
    """Uniform random bits for release ids: keyed in production, seeded in simulations."""

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        """128 uniform bits for each id, as a uint64 array (n, 2).

        `draw` counts the draws of one release.
        """
        ...

    def version_of(self, count: Ints, total: Ints) -> Words:
        """Digest of each exact input `(count, total)`, as a uint64 array (n,)."""
        ...

    def derived(self, purpose: str, settings: Mapping[str, Any]) -> NoiseSource:
        """Give the source for one purpose under these settings; see `KeyedNoise.derived`."""
        ...


def keyed_owner_words(ids: Sequence[str]) -> Words:
    """128-bit hash of each agent's or user's id, as a uint64 array (n, 2).

    Not secret: it only tells owners apart.

    Examples
    --------
    >>> keyed_owner_words(["N14228", "N24211"]).shape
    (2, 2)
    """
    begun = hashlib.blake2b(digest_size=16)
    digests = []
    for name in ids:
        hashed = begun.copy()  # quicker than another with the same parameters
        hashed.update(name.encode("utf-8", "surrogatepass"))
        digests.append(hashed.digest())

    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64)


class KeyedNoise:
    """Random bits from a secret key.

    The same id and version give the same bits, on every host and after every restart.

    Parameters
    ----------
    secret : bytes
        At least 128 bits from a cryptographic generator, such as `secrets.token_bytes(32)`, as
        bytes, hexadecimal digits or base 64; judged as a file of the command line is
        (`operators.noise.key_strength`). Anyone who knows it can subtract the noise from every
        release. Neither it nor a key derived from it is kept in readable form by `repr`, nor can it
        leave the process by pickling.
    deployment : str
        Name of the deployment: two deployments that share a secret draw independent noise.
    purpose : str
        What the noise is for, such as "release" or "vote"; purposes draw independent noise.

    Notes
    -----
    **Privacy.** The bits are indistinguishable from independent uniform ones for anyone who lacks the secret, as long
    as AES-256 is a pseudo-random permutation: the (epsilon, delta) of a mechanism built on them is computational. The
    function is CBC-MAC over exactly three blocks, `owner | index, draw | version`; for inputs of one fixed length
    CBC-MAC is a pseudo-random function, with an advantage of the order of (3 q)**2 / 2**128 after q draws. Keys come
    from HKDF-SHA256 with the deployment and the purpose in `info`.

    Raises
    ------
    ValueError
        If the secret cannot be 128 random bits, such as a phrase (it is not shown), or a name is
        empty.

    References
    ----------
    M. Bellare, J. Kilian, P. Rogaway, The Security of the Cipher Block Chaining Message Authentication Code, JCSS 2000.

    Examples
    --------
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="docs", purpose="release")
    >>> noise
    KeyedNoise(secret=<hidden>, deployment='docs', purpose='release')
    >>> count, total = np.array([10, 10]), np.array([531, 532])
    >>> ids = NoiseIds(keyed_owner_words(["a", "a"]), np.array([1, 1]), noise.version_of(count, total))
    >>> GaussianNoise(100.0).sample(noise.bits(ids)).round(1)
    array([-53.4,  86.6])
    """

    __slots__ = ("_encrypt", "_encrypt_version", "_root", "deployment", "purpose")

    def __init__(self, secret: bytes, *, deployment: str, purpose: str) -> None:
        require_strong_key(secret)
        self._set(secret, deployment, purpose)

    @classmethod
    def of_judged_key(cls, key: bytes, *, deployment: str, purpose: str) -> Self:
        """Make it of a key that was judged where it was read, or that is derived from one.

        A key that a durable state began with goes on, however weak; noise that is made new takes
        the class itself.
        """
        made = cls.__new__(cls)
        made._set(key, deployment, purpose)
        return made

    def _set(self, key: bytes, deployment: str, purpose: str) -> None:
        for name, value in (("deployment", deployment), ("purpose", purpose)):
            if not value:
                raise ValueError(f"{name} must be a non-empty name, got {value!r}")

        self.deployment = deployment
        self.purpose = purpose
        self._encrypt = _Encryptor(_derive(key, "noise", deployment, purpose))
        self._encrypt_version = _Encryptor(_derive(key, "version", deployment, purpose))
        self._root = _derive(key, "derived", deployment, purpose)

    def derived(self, purpose: str, settings: Mapping[str, Any]) -> Self:
        """Give noise under a key of its own.

        Anyone who makes releases takes it, with all that shapes them.

        Parameters
        ----------
        purpose : str
            Who draws, such as "agents".
        settings : mapping
            Everything that decides how random bits become a release, as `spelled` gives it.

        Notes
        -----
        **Privacy.** One key under two settings would scale the same draws: two releases of one sum under two epsilons
        would solve for the sum. Settings that are equal are one key, however their numbers were written.

        Examples
        --------
        >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="docs", purpose="agents")
        >>> keys = [noise.derived("agents", {"epsilon": epsilon}) for epsilon in (1.0, 1.0, 2.0)]
        >>> ids = NoiseIds(keyed_owner_words(["a"]), np.array([1]), np.array([7], dtype=np.uint64))
        >>> bits = [key.bits(ids).tolist() for key in keys]
        >>> bits[0] == bits[1], bits[0] == bits[2]
        (True, False)
        """
        digest = hashlib.sha256(canonical(dict(settings))).hexdigest()
        return self.of_judged_key(
            self._root, deployment=self.deployment, purpose=f"{purpose} {digest}"
        )

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        """128 pseudo-random bits for each id.

        Parameters
        ----------
        ids : NoiseIds
            Releases and the versions of their inputs.
        draw : int, default 0
            Which of the draws of a release, below 65536: draws of one release are independent.

        Returns
        -------
        uint64 array (n, 2)

        Raises
        ------
        ValueError
            If `draw` or a release index is out of range.
        """
        if not 0 <= draw < MAX_DRAWS:
            raise ValueError(f"draw must lie between 0 and {MAX_DRAWS - 1}, got {draw!r}")
        if len(ids) and (ids.index.min() < 0 or ids.index.max() >= 2**47):
            raise ValueError("index must lie between 0 and 2**47 - 1 for every release")

        encrypt = self._encrypt
        words = np.empty((len(ids), 2), dtype=np.uint64)
        for start in range(0, len(ids), _CHUNK):
            rows = slice(start, start + _CHUNK)
            chain = encrypt(ids.owner[rows])
            chain[:, 0] ^= ids.index[rows].astype(np.uint64) << np.uint64(16) | np.uint64(draw)
            chain = encrypt(chain)
            chain[:, 0] ^= ids.version[rows]
            words[rows] = encrypt(chain)

        return words

    def version_of(self, count: Ints, total: Ints) -> Words:
        """64-bit digest of each exact input under a key of its own.

        Without the secret it says nothing about the input.

        Parameters
        ----------
        count, total : int64 array (n,)
            Number of samples and their exact sum in grid units: what a release is about to be made
            of.

        Returns
        -------
        uint64 array (n,)
            Equal inputs have equal versions, anyone who owns them, so versions stay inside the
            trust domain, in the ledger; different inputs have different versions except with
            probability 2**-64.
        """
        blocks = np.empty((len(count), 2), np.int64)
        blocks[:, 0] = count
        blocks[:, 1] = total
        return self._encrypt_version(blocks.view(np.uint64))[:, 0].copy()

    def __repr__(self) -> str:
        return (
            f"KeyedNoise(secret=<hidden>, deployment={self.deployment!r}, purpose={self.purpose!r})"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Immutable, so a copy may be the object itself; river copies the parameters of whatever it
        # clones.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "KeyedNoise cannot be pickled: it holds a secret; build it where it is used"
        )


class _Encryptor(threading.local):
    """AES-256 of an array of 16-byte blocks, each on its own.

    A permutation of blocks, not a mode for messages.

    Each thread has a context of its own, which it makes once.
    """

    def __init__(self, key: bytes) -> None:
        # ECB is what "the block cipher applied to every row" is called; the chaining is in
        # `KeyedNoise.bits`.
        self._context = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def __call__(self, blocks: Words) -> Words:
        plaintext = np.ascontiguousarray(blocks, dtype="<u8")
        out = np.empty(plaintext.nbytes + _BLOCK, dtype=np.uint8)
        self._context.update_into(plaintext.reshape(-1).view(np.uint8).data, out.data)
        return out[: plaintext.nbytes].view("<u8").reshape(-1, 2)


def _derive(secret: bytes, label: str, deployment: str, purpose: str) -> bytes:
    # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    parts = [word.encode("utf-8") for word in ("meanstream 1", label, deployment, purpose)]
    info = b"".join(len(word).to_bytes(4, "big") + word for word in parts)
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
