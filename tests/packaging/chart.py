"""The helm chart: helm finds no fault, its objects are ones that Kubernetes takes, the plain manifests are
the chart with its defaults, a relay takes the configuration in them, and wrong values are refused. Two relays that
are started as the pods would be answer their probes, with their database and without.

usage: chart.py ROOT OUTBOX
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(sys.argv[1])
OUTBOX = sys.argv[2]
CHART = ROOT / "packaging/helm/outbox"
HELM = ROOT / "script/helm"
TEMPLATE = (HELM, "template", "outbox", CHART, "--kube-version", "1.31")
VERSIONS = ["1.25", "1.31"]
PATIENCE_S = int(os.environ.get("OUTBOX_PATIENCE_S", "60"))
PROBES = {"startupProbe": "/health/live", "livenessProbe": "/health/live", "readinessProbe": "/health/ready"}


def run(*command, fails_with=None):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if fails_with is None:
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    else:
        assert done.returncode != 0 and fails_with in done.stderr, (command, done.stdout, done.stderr)
    return done.stdout


def validate(manifests):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(manifests)
        file.flush()
        for version in VERSIONS:
            run(HELM, "check", "-m", "kubernetes_validate", "--strict", "-k", version, file.name)


def objects(manifests):
    """The objects by their kind."""
    text = run(HELM, "check", "-c", "import json, sys, yaml; print(json.dumps([o for o in yaml.safe_load_all(sys.argv[1]) "
               "if o]))", manifests)
    return {one["kind"]: one for one in json.loads(text)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Relay:
    """Started by the arguments of the pod's container, on a port of its own."""

    def __init__(self, container, config):
        self.port = free_port()
        own = {"/etc/outbox/outbox.toml": str(config), "0.0.0.0:9464": f"0.0.0.0:{self.port}"}
        assert own.keys() <= set(container["args"]), container["args"]
        self.paths = {name: container[name]["httpGet"]["path"] for name in PROBES}
        self.log = config.with_name(f"{self.port}.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([OUTBOX, *(own.get(word, word) for word in container["args"])],
                                            stdout=subprocess.DEVNULL, stderr=log)

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def answers(self):
        """The status of each probe, asked as the kubelet asks: by the address of the pod."""
        statuses = {}
        for name, path in self.paths.items():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            try:
                connection.request("GET", path, headers={"Host": f"10.1.2.3:{self.port}"})
                statuses[name] = connection.getresponse().status
            except OSError:
                statuses[name] = None
            finally:
                connection.close()
        return statuses

    def await_answers(self, live, ready):
        wanted = {"startupProbe": live, "livenessProbe": live, "readinessProbe": ready}
        end = time.monotonic() + PATIENCE_S
        while (now := self.answers()) != wanted:
            assert self.process.poll() is None and time.monotonic() < end, (now, wanted, self.log.read_text()[-3000:])
            time.sleep(0.05)


def check_probes(container, config):
    with tempfile.TemporaryDirectory(prefix="outbox-chart-") as folder, contextlib.ExitStack() as stack:
        place = pathlib.Path(folder)
        place.chmod(0o755)
        server = [ROOT / "script/servers/postgres", "--dir", place / "server"]
        run(server[0], "start", *server[1:])
        stack.callback(run, server[0], "wipe", *server[1:])
        password = re.search(r":postgres:(.+)", (place / "server/data/pgpass").read_text())[1]
        (place / "password").write_text(password + "\n")
        (place / "password").chmod(0o600)
        url = f"postgresql://postgres@127.0.0.1:{(place / 'server/port').read_text().strip()}/postgres"
        run(OUTBOX, "migrate", "--db", url, "--password-file", place / "password")
        text = re.sub(r"postgresql://[^\"]+", url, config.replace("/run/secrets/outbox", folder))
        (place / "outbox.toml").write_text(text)
        relays = [Relay(container, place / "outbox.toml") for _ in range(2)]
        for relay in relays:
            stack.callback(relay.end)
        for relay in relays:
            relay.await_answers(200, 200)
        run(server[0], "stop", *server[1:])
        for relay in relays:
            relay.await_answers(200, 503)
        run(server[0], "start", *server[1:])
        for relay in relays:
            relay.await_answers(200, 200)


def main():
    run(HELM, "lint", "--strict", CHART)
    rendered = run(*TEMPLATE)
    validate(rendered)

    plain = (ROOT / "packaging/kubernetes/outbox.yaml").read_text()
    made = "\n".join(line for line in rendered.splitlines() if not line.startswith("# Source: ") and "managed-by" not in line)
    assert plain.split("\n", 1)[1].strip() == made.strip(), "run script/helm render"

    # One relay has no budget; a monitor is asked for; no secret, no volume of it.
    one = run(*TEMPLATE, "--set", "replicas=1,secret=,podMonitor.enabled=true")
    assert "PodDisruptionBudget" not in one and "PodMonitor" in one and "/run/secrets" not in one.split("kind: Deployment")[1]

    run(*TEMPLATE, "--set", "replicas=0", fails_with="replicas")
    run(*TEMPLATE, "--set", "config=", fails_with="config")
    run(*TEMPLATE, "--set", "adminport=1", fails_with="adminport")

    made = objects(plain)
    assert made["Deployment"]["spec"]["replicas"] == 2, made["Deployment"]
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    budget = made["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"].items() <= labels, budget
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {name: container[name]["httpGet"]["path"] for name in PROBES} == PROBES, container
    assert all(container[name]["httpGet"]["port"] == "admin" for name in PROBES), container
    assert {"name": "admin", "containerPort": 9464} in container["ports"], container

    # As the page installs it, up to the cluster.
    (command,) = re.findall(r"^helm install (.+)$", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "outbox.toml"
        file.write_text('to = ["page=stdout:"]\n')
        words = command.replace("packaging/helm/outbox", str(CHART)).replace("outbox.toml", str(file)).split()
        shown = run(HELM, "template", *words, "--kube-version", "1.31")
        assert "registry.example.com/outbox:" in shown and "page=stdout:" in shown, shown

    # What a pod gets is a configuration that a relay takes: the only thing missing is the database.
    text = made["ConfigMap"]["data"]["outbox.toml"]
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "password").write_text("x\n")
        (place / "password").chmod(0o640)
        (place / "outbox.toml").write_text(text.replace("/run/secrets/outbox", folder)
                                           .replace("postgres.default.svc:5432", "127.0.0.1:1"))
        done = subprocess.run([OUTBOX, "relay", "--config", place / "outbox.toml", "--admin", "0.0.0.0:9464", "--check"],
                              capture_output=True, text=True)
        assert done.returncode != 2 and "127.0.0.1" in done.stdout + done.stderr, (done.returncode, done.stdout, done.stderr)
    check_probes(container, text)


main()
