"""Ask one address of this machine; exit code 0 if it answers 200.

The image has no curl, and no other need of one.
"""

import sys
import urllib.error
import urllib.request

SECONDS = 4.0


def healthy(url: str) -> bool:
    """Whether the address answers 200 in time."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - named in compose.yaml or the image
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(sys.argv[1]) else 1)
