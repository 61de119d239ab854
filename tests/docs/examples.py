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


def blocks_of(page, *languages):
    blocks = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", (ROOT / page).read_text(), re.MULTILINE)
    return [text for language, text in blocks if language in languages]


def commands_of(page):
    """The commands of its blocks, a line that goes on joined to the next."""
    found = []
    for block in blocks_of(f"docs/{page}", "", "sh", "sql"):
        block = re.sub(r"(?<=\n)SELECT .*?;", lambda statement: statement[0].replace("\n", " "), "\n" + block, flags=re.DOTALL)
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

    def check_settings(self, database, *parts):
        """A relay takes these lines of a configuration."""
        (self.place / "checked.toml").write_text("\n".join(parts))
        self.run_text(f"outbox relay --check --config checked.toml --from {self.base}/{database}")

    def test_0_readme(self):
        (text,) = blocks_of("README.md", "sql")
        (migrate,) = re.findall(r"^-- once:  (outbox .*)$", text, re.MULTILINE)
        (relay,) = [block.strip() for block in blocks_of("README.md", "") if block.startswith("outbox relay ")]
        self.sql("postgres", "CREATE DATABASE readme")
        self.run_text(self.own(migrate).replace("/shop", "/readme"))
        self.sql("readme", "CREATE TABLE orders (id text)")
        self.sql("readme", text.replace("INSERT INTO orders ...", "INSERT INTO orders VALUES ('o-1')"))
        command = self.own(relay, **{"kafka://localhost:9092": f"mailbox+{self.base}/billing"}).replace("/shop", "/readme")
        with self.running(f"{command} --admin off", "event=started"):
            wait_for("it is delivered", lambda: self.sql("billing", "DELETE FROM outbox_mailbox WHERE headers ->> 'type' = 'OrderCreated' RETURNING key") == "o-1")

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
        self.check_settings("shop", *blocks_of("docs/tenants.md", "toml"), f'to = "billing=mailbox+{self.base}/billing"')

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

    def test_6_sagas(self):
        listed, shown, aborted, resumed, statement = commands_of("sagas.md")
        step = '[{"step":"reserve","state":"sent","attempts":1,"late":0,"can_undo":true}]'
        self.sql("shop", "INSERT INTO outbox_saga (saga_id, name, version, state, steps, data, topic, leader, timer, step, updated_at) VALUES "
                 f"('s-1', 'order', 1, 'stuck', '{step}', '{{}}', 'sagas', 'sagas', 0, 'reserve', now() - interval '1 hour')")

        def run(command):
            return self.run_text(command.replace("--db URL", f"--db {self.base}/shop").replace(" ID ", " s-1 "))

        self.assertRegex(run(listed), "s-1 .*stuck")
        self.assertIn("reserve", run(shown))
        self.assertIn("would undo reserve", run(aborted))
        self.assertEqual(self.sql("shop", statement), "s-1|order|stuck|reserve|")
        self.assertIn("asked 1 saga to resume", run(resumed))

    def test_7_receiving(self):
        migrate, verify = re.findall(r"^(outbox (?:migrate|verify) .*)$", (ROOT / "docs/receiving.md").read_text(), re.MULTILINE)
        self.sql("postgres", "CREATE DATABASE inventory")
        self.run_text(self.own(migrate))
        self.assertEqual(self.sql("inventory", "SELECT inbox_accept('stock', 'o-1')"), "t")
        self.sql("inventory", "CREATE TABLE effects (seq integer, id text, key text, n integer); INSERT INTO effects VALUES (1, 'e-1', 'k', 1)")
        (self.place / "orders.jsonl").write_text('{"id":"e-1","key":"k","n":1,"applied":true}\n{"id":"e-2","key":"k","n":2,"applied":true}\n')
        command = self.own(verify, SOURCE=f"{self.base}/readme", CONSUMER=f"{self.base}/inventory")
        self.assertIn("lost", self.run_text(f"{command} || test $? -eq 1"))
        self.sql("inventory", "INSERT INTO effects VALUES (2, 'e-2', 'k', 2)")
        self.run_text(command)

    def test_8_configurations(self):
        """Brokers and stores are others here."""
        (self.place / "payloads").mkdir()
        self.sql("postgres", "CREATE DATABASE routes")
        self.run_text(f"outbox migrate --db {self.base}/routes")
        for page in ("claim-check", "formats"):
            (route,) = blocks_of(f"docs/{page}.md", "toml")
            self.assertIn("kafka://localhost:9092", route)
            route = route.replace("kafka://localhost:9092", f"mailbox+{self.base}/billing")
            self.check_settings("routes", re.sub(r'"s3://.*?"', f'"file://{self.place}/payloads"', route))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], failfast=True)
