"""The Containerfile, built by a container engine where one answers; else its last stage, done step by step in a
Debian 12 of its own. Then its entry point runs as its user, without a right to write.

usage: container.py ROOT      (as root; script/package has left the packages)
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

ROOT = pathlib.Path(sys.argv[1])


def stage():
    """The instructions after the last FROM, as (word, rest)."""
    steps = []
    for line in (ROOT / "packaging/container/Containerfile").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        word, rest = line.split(" ", 1)
        steps = [] if word == "FROM" else steps + [(word, rest)]
    return steps


def inside(root, *command, user=None):
    words = ["chroot"] + ([f"--userspec={user}"] if user else []) + [str(root), *command]
    # The folder of the tests for what is temporary is not there.
    variables = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    return subprocess.run(words, capture_output=True, text=True, env=variables)


def build(root):
    about = {}
    for word, rest in stage():
        if word == "COPY":
            _, source, target = rest.split()
            for file in ROOT.glob(source.removeprefix("/outbox/")):
                shutil.copy(file, root / target.strip("/"))
        elif word == "RUN":
            done = inside(root, "sh", "-c", rest)
            assert done.returncode == 0, (rest, done.stdout[-2000:], done.stderr[-2000:])
        elif word in ("ENTRYPOINT", "CMD"):
            about[word] = json.loads(rest)
        else:
            about[word] = rest
    return about


def engine():
    """The one that answers; docker is often there without its daemon."""
    for name, question in (("podman", ["info"]), ("buildah", ["info"]), ("docker", ["version"])):
        if shutil.which(name) and not subprocess.run([name, *question], capture_output=True).returncode:
            return name
    return None


def by_engine(name):
    image = f"outbox-test-{uuid.uuid4().hex}"
    subprocess.run([name, "build", "-f", ROOT / "packaging/container/Containerfile", "-t", image, ROOT], check=True)
    try:
        if name == "buildah":
            work = subprocess.run([name, "from", image], check=True, capture_output=True, text=True).stdout.strip()
            command = [name, "run", work, "--", "/usr/bin/outbox", "--help"]
        else:
            command = [name, "run", "--rm", "--read-only", image]
        said = subprocess.run(command, capture_output=True, text=True)
        if name == "buildah":
            subprocess.run([name, "rm", work], check=True, capture_output=True)
        assert said.returncode == 0 and "outbox relay" in said.stdout, said
    finally:
        subprocess.run([name, "rmi", image], capture_output=True)


def by_hand():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", root], check=True)
        about = build(root)
        user = about["USER"]
        help_text = inside(root, *about["ENTRYPOINT"], *about["CMD"], user=user)
        assert help_text.returncode == 0 and "outbox relay" in help_text.stdout, help_text
        assert not list((root / "tmp").iterdir()), "the package is left in the image"
        refused = inside(root, *about["ENTRYPOINT"], "migrate", "--db", "sqlite:///shop.db", user=user)
        assert refused.returncode not in (0, 2), refused
        (root / "srv").chmod(0o777)
        made = inside(root, *about["ENTRYPOINT"], "migrate", "--db", "sqlite:///srv/shop.db", user=user)
        assert made.returncode == 0, made


def main():
    name = engine()
    print(f"built by {name}" if name else "no container engine answers: its last stage is done step by step", flush=True)
    by_engine(name) if name else by_hand()


main()
