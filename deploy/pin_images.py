"""Read the digest of each image from its registry, and print or write it beside the tag.

    python deploy/pin_images.py docker/compose.yaml                     # prints IMAGE@DIGEST for each tag
    python deploy/pin_images.py docker/compose.yaml --write             # writes them into the file
    python deploy/pin_images.py --image registry.example/meanstream-engine:0.3.0

A digest is written only where a registry has just given it: the SHA-256 of what it sent is compared
with what it says. Images that the file builds itself have none before they are pushed, and are left
alone. A registry that cannot be reached, or refuses, ends the script with exit code 1, and nothing
is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HUB = "registry-1.docker.io"
ACCEPTED = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
)  # fmt: skip
MOST_BYTES = 4 << 20
SECONDS = 20.0
_IMAGE = re.compile(
    r"(?m)^(?P<before>\s*(?:image|ARG (?:PYTHON|BEAM))\s*[:=]\s*)"
    r"(?P<image>[^\s@#\"']+:[^\s@#\"']+)(?:@sha256:[0-9a-f]{64})?"
)
OURS = "meanstream-"


class RegistryError(Exception):
    """A registry that did not give a digest."""


def image_parts(image: str) -> tuple[str, str, str]:
    """Split an image into registry, repository and tag.

    Examples
    --------
    >>> image_parts("apache/kafka:4.3.1"), image_parts("python:3.11.14-slim")
    (('registry-1.docker.io', 'apache/kafka', '4.3.1'), ('registry-1.docker.io', 'library/python', '3.11.14-slim'))
    >>> image_parts("registry.example:5000/team/engine:0.3.0")
    ('registry.example:5000', 'team/engine', '0.3.0')
    """
    name, _, tag = image.rpartition(":")
    host, slash, rest = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return host, rest, tag
    return HUB, name if slash else f"library/{name}", tag


def read_digest(image: str) -> str:
    """Ask an image's registry for the digest of its tag.

    Raises
    ------
    RegistryError
        If it cannot be reached, refuses, or gives another digest than that of what it sends.
    """
    registry, repository, tag = image_parts(image)
    scheme = "http" if registry.split(":")[0] in ("127.0.0.1", "localhost") else "https"
    url = f"{scheme}://{registry}/v2/{repository}/manifests/{urllib.parse.quote(tag)}"
    try:
        told, body = _get(url, None)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise RegistryError(f"{image}: {registry} answers {error.code}") from None
        told, body = _get_with_token(url, image, error.headers.get("WWW-Authenticate", ""))
    except OSError as error:
        raise RegistryError(
            f"{image}: {registry} cannot be reached ({getattr(error, 'reason', error)})"
        ) from None
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if told is not None and told != found:
        raise RegistryError(f"{image}: {registry} says {told} and sends {found}")
    return found


def _get(url: str, token: str | None) -> tuple[str | None, bytes]:
    headers = {
        "Accept": ", ".join(ACCEPTED),
        **({} if token is None else {"Authorization": f"Bearer {token}"}),
    }
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - of a registry that was named
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return answer.headers.get("Docker-Content-Digest"), answer.read(MOST_BYTES)


def _get_with_token(url: str, image: str, challenge: str) -> tuple[str | None, bytes]:
    """Get a token for pulling, as the registry's challenge says, and ask again."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = asked.pop("realm", "")
    if not realm.startswith("https://"):
        raise RegistryError(f"{image}: needs a login")
    try:
        _, body = _get(f"{realm}?{urllib.parse.urlencode(asked)}", None)
        return _get(url, str(json.loads(body)["token"]))
    except (OSError, ValueError, KeyError) as error:
        raise RegistryError(f"{image}: needs a login ({type(error).__name__})") from None


def pinned(text: str, digests: dict[str, str]) -> str:
    """Write digests beside the tags of a file's images; an older digest goes.

    Examples
    --------
    >>> pinned("    image: a/b:1 # x", {"a/b:1": "sha256:" + 64 * "0"})[:26]
    '    image: a/b:1@sha256:00'
    """

    def with_digest(found: re.Match[str]) -> str:
        image = found["image"]
        return found["before"] + image + (f"@{digests[image]}" if image in digests else "")

    return _IMAGE.sub(with_digest, text)


def images_in(text: str) -> list[str]:
    """List a file's images, each once, but those that it builds."""
    found = dict.fromkeys(match["image"] for match in _IMAGE.finditer(text))
    return [image for image in found if not image.startswith(OURS)]


def main() -> int:
    """Read all digests, then print or write them: all or none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="compose files, Dockerfiles")
    parser.add_argument(
        "--image", action="append", default=[], help="REGISTRY/NAME:TAG; print its digest"
    )
    parser.add_argument("--write", action="store_true", help="write the digests into the files")
    given = parser.parse_args()
    texts = {path: path.read_text() for path in given.files}
    wanted = dict.fromkeys(
        [*given.image, *(image for text in texts.values() for image in images_in(text))]
    )
    try:
        digests = {image: read_digest(image) for image in wanted}
    except RegistryError as error:
        sys.stderr.write(f"pin_images: {error}\n")
        return 1
    for image, digest in digests.items():
        sys.stdout.write(f"{image}@{digest}\n")
    if given.write:
        for path, text in texts.items():
            path.write_text(pinned(text, digests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
