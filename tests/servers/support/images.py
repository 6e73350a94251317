"""The project's images, built by buildah on a base of Debian packages and run by crun as
compose.yaml would run them.

No image registry is needed: `make images` makes the base with debootstrap, and Beam's `boot` from
its Go module.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.servers.support.broker import SERVERS
from tests.servers.support.wait_until import wait_until

ROOT = Path(__file__).parents[3]
BASE = SERVERS / "python-base-bookworm"
BOOT = SERVERS / "beam-boot-2.77.0"  # as in the Makefile
IMAGES = ("engine", "beam")
BUILD_SECONDS = 1800
CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"
_OWN_CGROUPS = "mount -t cgroup2 none /sys/fs/cgroup && exec crun --cgroup-manager=disabled "
"""In a mount namespace of its own: crun refuses machines whose two versions of cgroups are mixed,
and needs none."""

_numbers = itertools.count()


def missing() -> str | None:
    """Say what is not there to build and run images, or None."""
    for program in ("buildah", "crun", "unshare"):
        if shutil.which(program) is None:
            return f"no {program} on the path"
    if os.geteuid() != 0:
        return "images are built and run by root only"
    made = BASE.with_name(f"{BASE.name}.complete").exists() and (BOOT / "container").exists()
    return None if made else f"no base in {BASE}: run `make images`"


class Images:
    """Builds the images in a storage of its own, and removes it.

    Parameters
    ----------
    folder : Path
        Storage and, of each container, its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def __enter__(self) -> Self:
        self._build("base", f"FROM scratch\nCOPY {BASE.name}/ /\n", SERVERS)
        return self

    def __exit__(self, *_: object) -> None:
        self._buildah("umount", "--all", check=False)
        self._buildah("rm", "--all", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def build(self, name: str) -> None:
        """Build one of the project's Dockerfiles as it stands, on the base."""
        arguments = ["--build-arg", "PYTHON=localhost/base"]
        if name == "beam":
            self._build("boot", "FROM scratch\nCOPY container /opt/apache/beam/boot\n", BOOT)
            arguments += ["--build-arg", "BEAM=localhost/boot"]
        text = (ROOT / "docker" / f"{name}.Dockerfile").read_text()
        self._build(name, text, ROOT, "--network", "host", "-v", CERTIFICATES, *arguments)

    def size(self, name: str) -> int:
        """Give an image's size in bytes, with its base."""
        root = self.mount(name)
        asked = ["du", "-sxB1", "--apparent-size", root]
        return int(
            subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()[0]
        )

    def mount(self, name: str) -> str:
        """Mount a new container of an image, and give the folder of its root."""
        container = self._buildah("from", "--pull-never", f"localhost/{name}").strip()
        return self._buildah("mount", container).strip()

    def settings(self, name: str) -> dict[str, Any]:
        """Give what the image says of its programs: user, environment, entry point, health
        check."""
        found: dict[str, Any] = json.loads(
            self._buildah("inspect", "--type", "image", f"localhost/{name}")
        )
        return dict(found["Docker"]["config"])

    def _build(self, name: str, dockerfile: str, context: Path, *arguments: str) -> None:
        file = self.folder / f"{name}.Dockerfile"
        file.write_text(dockerfile)
        self._buildah(
            "bud",
            "--format",
            "docker",
            "-t",
            f"localhost/{name}",
            "-f",
            str(file),
            *arguments,
            str(context),
        )

    def _buildah(self, command: str, *arguments: str, check: bool = True) -> str:
        places = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        ran = subprocess.run(
            ["buildah", *places, command, *arguments], capture_output=True, text=True, check=False,
            env=environment, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not check or ran.returncode == 0, (
            f"buildah {command}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        )
        return ran.stdout


class Container:
    """A program in an image: read-only root, no capabilities, the image's user, this machine's
    network.

    Parameters
    ----------
    images : Images
    name : str
        Of the image.
    arguments : sequence of str
        Behind the entry point, or instead of the image's arguments.
    entrypoint : sequence of str, optional
        Instead of the image's.
    volumes : mapping
        Folders of this machine by their place in the container.
    environment : mapping
        Variables besides the image's.
    """

    def __init__(
        self, images: Images, name: str, arguments: Sequence[str], *, entrypoint: Sequence[str] | None = None,
        volumes: Mapping[str, Path] | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._id = f"{name}-{next(_numbers)}"
        self._bundle = images.folder / self._id
        self._bundle.mkdir()
        self._settings = settings = images.settings(name)
        user, _, group = settings["User"].partition(":")
        subprocess.run(["crun", "spec"], cwd=self._bundle, check=True)
        spec = json.loads((self._bundle / "config.json").read_text())
        spec["root"] = {"path": images.mount(name), "readonly": True}
        spec["process"] |= {
            "terminal": False,
            "user": {"uid": int(user), "gid": int(group)},
            "args": [*(settings["Entrypoint"] if entrypoint is None else entrypoint), *arguments],
            "cwd": settings["WorkingDir"],
            "env": [
                *settings["Env"],
                *(f"{key}={value}" for key, value in (environment or {}).items()),
            ],
            "capabilities": {
                kind: []
                for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "noNewPrivileges": True,
        }
        spec["linux"].pop("resources", None)
        spec["linux"]["namespaces"] = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
        mounts = [one for one in spec["mounts"] if not one["destination"].startswith("/sys")]
        mounts.append(
            {
                "destination": "/tmp",  # noqa: S108
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "nodev"],
            }
        )
        for there, here in (volumes or {}).items():
            mounts.append(
                {
                    "destination": there,
                    "type": "bind",
                    "source": str(here),
                    "options": ["rbind", "rw"],
                }
            )
        spec["mounts"] = mounts
        (self._bundle / "config.json").write_text(json.dumps(spec))
        self._process = self._crun("run", "--bundle", str(self._bundle), self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.signal("KILL")
        self._process.communicate(timeout=60)

    def wait(self, seconds: float = 300) -> tuple[int, str, str]:
        """Wait for its end, and give exit code, output and errors."""
        output, errors = self._process.communicate(timeout=seconds)
        return self._process.returncode, output, errors

    def run(self, *command: str) -> int:
        """Run a command beside it, as the same user, and give its exit code."""
        return self._crun("exec", self._id, *command, quiet=True).wait(60)

    def healthy(self, port: int) -> bool:
        """Run the image's own health check, at another port."""
        kind, *command = self._settings["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.run(*(word.replace("9464", str(port)) for word in command)) == 0

    def signal(self, name: str) -> None:
        """Send a signal to its first process."""
        assert hasattr(signal, f"SIG{name}")
        wait_until(lambda: self._crun("kill", self._id, name, quiet=True).wait(60) == 0, 60)

    def _crun(self, *arguments: str, quiet: bool = False) -> subprocess.Popen[str]:
        words = [
            _OWN_CGROUPS + '"$@"',
            "crun",
            "--root",
            str(self._bundle.parent / "crun"),
            *arguments,
        ]
        output = subprocess.DEVNULL if quiet else subprocess.PIPE
        return subprocess.Popen(
            ["unshare", "-m", "sh", "-c", *words],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            text=True,
        )
