"""The commands that the pages for operators show, run as they stand there: only addresses, files and figures of one's
own are put in their place. A command that a page shows and nobody runs here is an error.

usage: examples.py ROOT OUTBOX
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT, OUTBOX = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PATIENCE_S = int(os.environ.get("OUTBOX_PATIENCE_S", "60"))
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
# Of blocks: what is a command. Those of podman, helm, kubectl and systemctl are for tests/packaging.
COMMAND = re.compile(r"^(?:outbox|curl|\(umask|SELECT) ")


def commands_of(page):
    """The commands of its blocks, a line that goes on joined to the next."""
    found = []
    for block in re.findall(r"^```(?:sh|sql)?\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL):
        lines = block.replace("\\\n", " ").splitlines()
        if not any(COMMAND.match(line) for line in lines):
            continue
        strange = [line for line in lines if line and not COMMAND.match(line)]
        assert not strange, f"docs/{page}: no command: {strange}"
        found += [re.split(r"\s+(?:#|--) ", line)[0] for line in lines if line]
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, holds):
    end = time.monotonic() + PATIENCE_S
    while not (got := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)
    return got


class Collector:
    """Keeps what is posted to /v1/traces."""

    def __init__(self):
        self.got = ""
        keeper = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/v1/traces":
                    keeper.got += body
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.port = server.server_port


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="outbox-examples-")))
        cls.place.chmod(0o755)
        (cls.place / "bin").mkdir()
        (cls.place / "bin/outbox").symlink_to(OUTBOX)
        cls.server("start")
        cls.addClassCleanup(cls.server, "wipe")
        cls.variables = os.environ | {"PATH": f"{cls.place}/bin:{os.environ['PATH']}",
                                      "PGPASSFILE": str(cls.place / "server/data/pgpass")}
        cls.base = f"postgresql://postgres@127.0.0.1:{(cls.place / 'server/port').read_text().strip()}"
        for name in ("shop", "billing", "kept"):
            cls.sql("postgres", f"CREATE DATABASE {name}")
        cls.run_text(f"outbox migrate --db {cls.base}/shop && outbox migrate --db {cls.base}/billing --only consumer")
        # Routes are known once a relay has run.
        cls.sql("shop", f"SELECT outbox_emit(topic => 'orders', payload => '{{}}', traceparent => '00-{TRACE}-00f067aa0ba902b7-01')")

    @classmethod
    def server(cls, verb):
        subprocess.run([ROOT / "script/servers/postgres", verb, "--dir", cls.place / "server"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def sql(cls, database, statement):
        return subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statement, f"{cls.base}/{database}"], text=True,
                              check=True, stdout=subprocess.PIPE, env=cls.variables).stdout.strip()

    @classmethod
    def run_text(cls, command):
        done = subprocess.run(["sh", "-ec", command], cwd=cls.place, env=cls.variables, text=True, capture_output=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    @classmethod
    def own(cls, command, **more):
        """With the databases and files that there are here."""
        command = re.sub(r"postgresql://\w+@\w+/(\w+)", rf"{cls.base}/\1", command)
        command = command.replace("/var/lib/", f"{cls.place}/").replace("/etc/outbox/", f"{cls.place}/")
        for what, instead in more.items():
            assert what in command, (what, command)
            command = command.replace(what, instead)
        return command

    @contextlib.contextmanager
    def running(self, command, says):
        """While it runs, and after it has said so, or logged it."""
        with tempfile.NamedTemporaryFile("w") as out:
            process = subprocess.Popen(["sh", "-ec", f"exec {command}"], cwd=self.place, env=self.variables, stdout=out,
                                       stderr=subprocess.STDOUT)

            def said():
                text = pathlib.Path(out.name).read_text()
                assert process.poll() is None, (command, text)
                return re.search(says, text)

            try:
                wait_for(f"{command} says {says}", said)
                yield
            finally:
                process.terminate()
                process.wait(PATIENCE_S)

    def get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def test_1_tracing(self):
        (relay,) = commands_of("tracing.md")
        collector = Collector()
        command = self.own(relay.replace("@db/", "@localhost/"), **{
            "kafka://kafka:9092": f"billing=mailbox+{self.base}/billing", "http://collector:4318": f"http://127.0.0.1:{collector.port}"})
        with self.running(f"{command} --admin off", "event=started"):
            wait_for("the span is sent", lambda: TRACE in collector.got)
        self.assertIn("outbox.publish", collector.got)

    def test_2_tenants(self):
        pause, show, resume = map(self.own, commands_of("tenants.md"))
        self.run_text(pause)
        self.assertRegex(self.run_text(show), "acme.*their topic is being rebuilt")
        self.run_text(resume)
        self.assertNotIn("acme", self.run_text(show))

    def test_3_dashboard(self):
        plain, with_consumer, of_relay, token, curl = commands_of("dashboard.md")
        self.run_text(token)
        self.run_text(f"outbox migrate --db sqlite://{self.place}/shop.db; outbox migrate --db sqlite://{self.place}/billing.db --only consumer")
        for command in (plain, with_consumer):
            port = free_port()
            with self.running(f"{self.own(command)} --listen 127.0.0.1:{port}", "http://127.0.0.1"):
                self.assertIn("<html", self.get(port, "/"))
        self.sql("shop", "INSERT INTO outbox_dead_letters (source, route, position, id, topic, attempts, error_code, error) SELECT source, "
                 "route, 100 + n, gen_random_uuid(), 'orders', 5, 'OB_TOPIC_UNKNOWN', 'no' FROM outbox_routes, generate_series(1, 12) n")
        port = free_port()
        command = self.own(of_relay, **{"--from ... --to ...": f"--from {self.base}/shop --to billing=mailbox+{self.base}/billing"})
        (asked,) = re.findall(r"`GET (/api/letters/count\?\S+)`", (ROOT / "docs/dashboard.md").read_text())
        with self.running(f"{command} --admin 127.0.0.1:{port}", "event=admin_listening"):
            count = json.loads(wait_for("the page counts", lambda: self.get(port, asked)))
            self.assertEqual(count["matched"], 12)
            answer = json.loads(self.run_text(self.own(curl, **{"127.0.0.1:9465": f"127.0.0.1:{port}", "4711": str(count["up_to"])})))
            self.assertEqual(answer["matched"], 12, answer)
            wait_for("they are delivered", lambda: self.sql("shop", "SELECT count(*) FROM outbox_dead_letters") == "0")

    def test_4_operating(self):
        (doctor,) = commands_of("operating.md")
        (self.place / "outbox.toml").write_text(f'to = ["billing=mailbox+{self.base}/billing"]\n[source]\nurl = "{self.base}/shop"\n')
        said = self.run_text(self.own(doctor, **{"/etc/outbox.toml": f"{self.place}/outbox.toml"}))
        self.assertIn("0 problems", said)

    def test_5_keep(self):
        migrate, *statements = commands_of("keep.md")
        self.run_text(self.own(migrate).replace("/shop", "/kept"))
        self.sql("kept", "SELECT outbox_emit(topic => 'orders', payload => '{}')")
        self.assertEqual(len(statements), 2)
        self.assertEqual(len(self.sql("kept", statements[0]).splitlines()), 1)
        self.sql("kept", statements[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], failfast=True)
