"""The helm chart: helm finds no fault, its objects are ones that Kubernetes takes, the plain manifests are
the chart with its defaults, a relay takes the configuration in them, and wrong values are refused.

usage: chart.py ROOT OUTBOX
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1])
OUTBOX = sys.argv[2]
CHART = ROOT / "packaging/helm/outbox"
HELM = ROOT / "script/helm"
TEMPLATE = (HELM, "template", "outbox", CHART, "--kube-version", "1.31")
VERSIONS = ["1.25", "1.31"]


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

    # What a pod gets is a configuration that a relay takes: the only thing missing is the database.
    text = run(HELM, "check", "-c", "import sys, yaml; print(next(o for o in yaml.safe_load_all(sys.argv[1]) "
               "if o['kind'] == 'ConfigMap')['data']['outbox.toml'])", plain)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "password").write_text("x\n")
        (place / "password").chmod(0o640)
        (place / "outbox.toml").write_text(text.replace("/run/secrets/outbox", folder)
                                           .replace("postgres.default.svc:5432", "127.0.0.1:1"))
        done = subprocess.run([OUTBOX, "relay", "--config", place / "outbox.toml", "--admin", "0.0.0.0:9464", "--check"],
                              capture_output=True, text=True)
        assert done.returncode != 2 and "127.0.0.1" in done.stdout + done.stderr, (done.returncode, done.stdout, done.stderr)


main()
