"""Runs the order service, the relay and two consumers, breaks them, and checks what arrived.

usage: demo.py FOLDER_OF_THE_PROGRAMS [--keep-running]
"""

import http.client
import json
import os
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid

PROGRAMS = sys.argv[1]
KEEP_RUNNING = "--keep-running" in sys.argv[2:]

CLIENTS = 4
USERS = 12
BACKLOG = 240  # orders taken while no relay runs
MAX_DOUBLINGS = 6
REPEATS = 40  # events put back into the outbox after they were delivered
BATCH_SIZE = 20  # small, so that there is a middle to kill the relay in
DEADLINE_S = 60  # of every single wait
EXPECTED = "lost 0, ghosts 0, out of order 0, repeats applied 0, dead letters 1"


class DemoFailed(Exception):
    pass


class Program:
    """A child process whose output goes to files in the demo's folder."""

    def __init__(self, folder, name, command, environment=None):
        self.name = name
        self.out_path = os.path.join(folder, name + ".out")
        self.log_path = os.path.join(folder, name + ".log")
        with open(self.out_path, "ab") as out, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                # The kernel ends a child when this process goes, however it goes.
                ["setpriv", "--pdeathsig", "KILL", os.path.join(PROGRAMS, command[0])] + command[1:],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                process_group=0,  # Ctrl-C is ours to handle
            )

    def check(self):
        if self.process.poll() is not None:
            raise DemoFailed(f"{self.name} ended with code {self.process.returncode}:\n{self.log_tail()}")

    def log_tail(self):
        with open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-15:])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Journal:
    """Counts the lines of a consumer's journal as they come."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.applied = 0
        self.repeats = 0

    def refresh(self):
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.offset += len(line)
                self.applied += b'"applied":true' in line
                self.repeats += b'"applied":false' in line


class Display:
    """Lines that change in a terminal; one plain line now and then elsewhere."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.drawn = 0  # lines to be drawn over
        self.shown = []
        self.last_plain = 0.0

    def erase(self):
        if self.drawn:
            sys.stdout.write(f"\033[{self.drawn}A\033[J")
        self.drawn = 0

    def figures(self, lines):
        if self.live:
            self.erase()
            width = shutil.get_terminal_size().columns - 1
            print("\n".join(line[:width] for line in lines), flush=True)
            self.drawn = len(lines)
        elif lines != self.shown and time.monotonic() - self.last_plain >= 1:
            self.last_plain = time.monotonic()
            print("   " + " | ".join(line.strip() for line in lines), flush=True)
        self.shown = lines

    def final_figures(self, lines):
        if self.live:
            self.figures(lines)
            self.drawn = 0
        elif lines != self.shown:
            print("   " + " | ".join(line.strip() for line in lines), flush=True)
        self.shown = []

    def say(self, text=""):
        self.erase()
        print(text, flush=True)


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.display = Display()
        self.programs = []
        self.relay = None
        self.port = 0
        self.failed_posts = 0
        self.stop_clients = threading.Event()
        self.orders_db = self.path("orders.db")
        self.journals = {name: Journal(self.path(name + ".jsonl")) for name in ("inventory", "notification")}

    def path(self, name):
        return os.path.join(self.folder, name)

    # --- the programs

    def start(self, name, command, environment=None):
        program = Program(self.folder, name, command, environment)
        self.programs.append(program)
        return program

    def start_order_service(self):
        service = self.start(
            "order-service",
            ["order-service", "--journal", self.path("orders.jsonl"), "--order-by", "user"],
            {"DATABASE_URL": f"sqlite://{self.orders_db}", "PORT": "0"},
        )

        def listening():
            with open(service.out_path) as out:
                words = out.read().split("listening on http://127.0.0.1:")
            self.port = int(words[1]) if len(words) == 2 and words[1].endswith("\n") else 0
            return self.port != 0

        self.wait("the order service listens", listening)

    def start_consumers(self):
        for name in self.journals:
            self.start(
                name + "-service",
                [name + "-service", "--journal", self.journals[name].path],
                {"DATABASE_URL": f"sqlite://{self.path(name + '.db')}"},
            )

    def write_config(self):
        with open(self.path("outbox.toml"), "w") as config:
            config.write(
                f"""batch_size = {BATCH_SIZE}

[source]
url = "sqlite://{self.orders_db}"

[[route]]
name = "inventory"
to = "mailbox+sqlite://{self.path('inventory.db')}"

[[route]]
name = "notification"
to = "mailbox+sqlite://{self.path('notification.db')}"
allowed_topics = ["order-events"]
"""
            )

    def start_relay(self):
        self.relay = self.start("relay", ["outbox", "relay", "--config", self.path("outbox.toml"), "--admin", "off"])

    def kill_relay(self):
        self.relay.kill()
        self.programs.remove(self.relay)

    # --- looking

    def query(self, database, sql):
        connection = sqlite3.connect(f"file:{self.path(database)}?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute(sql).fetchone()[0]
        finally:
            connection.close()

    def pending(self):
        return self.query("orders.db", "SELECT count(*) FROM outbox_events")

    def waiting(self, name):
        return self.query(name + ".db", "SELECT count(*) FROM outbox_mailbox")

    def delivered(self, name):
        """Messages that reached the mailbox, repeats included."""
        journal = self.journals[name]
        journal.refresh()
        return journal.applied + journal.repeats + self.waiting(name)

    def figures(self):
        orders = self.query("orders.db", "SELECT count(*) FROM orders")
        lines = [f"   orders {orders}, pending {self.pending()}"]
        for name, journal in self.journals.items():
            delivered = self.delivered(name)
            lines.append(
                f"   {name}: delivered {delivered}, applied {journal.applied}, repeats dropped {journal.repeats}"
            )
        return lines

    def wait(self, what, condition, pause_s=0.05, show=False):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for program in self.programs:
                program.check()
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {p.name}\n{p.log_tail()}" for p in self.programs)
                raise DemoFailed(f"waited {DEADLINE_S} s in vain until {what}\n{logs}")
            if show:
                self.display.figures(self.figures())
            time.sleep(pause_s)

    def wait_until_quiet(self):
        def quiet():
            return self.pending() == 0 and all(self.waiting(name) == 0 for name in self.journals)

        self.wait("everything is delivered and applied", quiet, show=True)
        self.display.final_figures(self.figures())

    # --- doing

    def new_order(self):
        return {
            "user_id": f"u-{random.randint(1, USERS)}",
            "product_id": f"p-{random.randint(1, 5)}",
            "quantity": random.randint(1, 3),
            "total_amount": random.randint(1, 20000) / 100,
        }

    def post_orders(self, count=None):
        """Posts `count` orders, or until told to stop."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        posted = 0
        try:
            while not self.stop_clients.is_set() and (count is None or posted < count):
                connection.request("POST", "/api/orders", json.dumps(self.new_order()))
                answer = connection.getresponse()
                answer.read()
                self.failed_posts += answer.status != 201
                posted += 1
        except (OSError, http.client.HTTPException):
            self.failed_posts += 1
        connection.close()

    def run_clients(self, count=None):
        self.stop_clients.clear()
        clients = [threading.Thread(target=self.post_orders, args=(count,), daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        return clients

    def post_one_with_curl(self):
        body = '{"user_id":"u-1","product_id":"p-1","quantity":2,"total_amount":99.99}'
        command = ["curl", "-sS", "-X", "POST", f"http://127.0.0.1:{self.port}/api/orders", "-d", body]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.display.say("$ " + shlex.join(command))
        self.display.say(answer.stdout.strip() + answer.stderr.strip())
        if '"status":"CREATED"' not in answer.stdout:
            raise DemoFailed("the order service refused the order")

    def kill_relay_between_delivering_and_recording(self):
        """Starts the relay on a backlog. As soon as it has recorded some of it, holds the outbox's
        write lock, so that it delivers more and cannot record it; then kills it. False: it was
        through with the backlog already."""
        before, reached = self.pending(), self.delivered("inventory")
        self.start_relay()
        self.wait("the relay has recorded some", lambda: self.pending() < before, pause_s=0.0005)
        with self.writer() as connection:
            connection.execute("BEGIN IMMEDIATE")
            recorded = before - self.pending()
            if recorded < before:
                self.wait("it delivers more", lambda: self.delivered("inventory") > reached + recorded)
            self.kill_relay()
            more = self.delivered("inventory") - reached - recorded
        if recorded == before:
            return False
        self.display.say(
            f"   SIGKILL to the relay: of {before} events {recorded} were delivered and recorded, "
            f"{more} delivered and not recorded"
        )
        return True

    def take_orders_while_killing_the_relay(self):
        clients = self.run_clients()
        for _ in range(2):
            busy_until = time.monotonic() + 0.7
            self.wait("orders flow", lambda: time.monotonic() > busy_until, show=True)
            self.kill_relay()
            self.display.say(f"   SIGKILL to the relay while orders flow, {self.pending()} events pending")
            self.start_relay()
        self.stop_clients.set()
        for client in clients:
            client.join()
        self.wait_until_quiet()

    def kill_the_relay_in_a_backlog(self):
        self.kill_relay()
        self.make_backlog()
        with self.writer() as connection:
            connection.execute(f"CREATE TABLE demo_copies AS SELECT * FROM outbox_events LIMIT {REPEATS}")
        # A relay that was through with it before it could be killed gets a larger one.
        for doublings in range(1, MAX_DOUBLINGS + 1):
            if self.kill_relay_between_delivering_and_recording():
                break
            self.make_backlog(BACKLOG * 2**doublings)
        else:
            raise DemoFailed(f"the relay was never killed in mid-batch, in {MAX_DOUBLINGS} attempts")
        self.start_relay()
        self.wait_until_quiet()

    def make_backlog(self, orders=BACKLOG):
        clients = self.run_clients(orders // CLIENTS)
        self.wait("the backlog is written", lambda: not any(c.is_alive() for c in clients), show=True)

    def put_events_back(self):
        """As after a crash between publishing and recording: the same events are in the outbox again."""
        columns = (
            "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
            "schema_version, occurred_at, topic, key, routing_key"
        )
        with self.writer() as connection:
            connection.execute(
                f"INSERT INTO outbox_events ({columns}) SELECT {columns} FROM demo_copies ORDER BY position"
            )
        self.wait_until_quiet()

    def write_an_event_that_fails_for_ever(self):
        """A plain INSERT, as a program in any language could do it, with a topic of its own that the
        route to the notification service does not allow."""
        event_id = str(uuid.uuid4())
        payload = {"order_id": "o-x", "user_id": "u-x", "product_id": "p-x", "quantity": 1, "total_amount": 1}
        with open(self.path("by-hand.jsonl"), "w") as journal:
            entry = {"id": event_id, "key": "by-hand", "n": 1}
            journal.write(json.dumps({**entry, "state": "intent"}) + "\n")
            with self.writer() as connection:
                connection.execute(
                    "INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers, topic)"
                    " VALUES (?, 'Order', 'by-hand', 'OrderCreated', ?, '{\"n\":\"1\"}', 'secret-orders')",
                    (event_id, json.dumps(payload)),
                )
            journal.write(json.dumps(entry) + "\n")
        self.wait_until_quiet()

    def writer(self):
        """A transaction on the orders' database, closed at the end of the with block."""
        connection = sqlite3.connect(self.orders_db, timeout=DEADLINE_S)

        class Closing:
            def __enter__(self):
                return connection.__enter__()

            def __exit__(self, *error):
                connection.__exit__(*error)
                connection.close()

        return Closing()

    def verify(self, *received):
        command = [os.path.join(PROGRAMS, "outbox"), "verify"]
        for name in ("orders.jsonl", "by-hand.jsonl"):
            command += ["--produced", self.path(name)]
        command += [*received, "--db", f"sqlite://{self.orders_db}"]
        self.display.say("$ " + shlex.join(["outbox"] + command[1:]))
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if result.stderr:
            print(result.stderr, file=sys.stderr, end="", flush=True)
        return result

    def verdict(self):
        # What a consumer's journal says is what it believes; the mails are what it did.
        effects = self.verify("--effect-db", f"sqlite://{self.path('notification.db')}", "--effect-query",
                              "SELECT idempotency_key FROM mails_to_send ORDER BY rowid")
        if effects.returncode != 0:
            return effects
        self.display.say(effects.stdout.strip().splitlines()[-1])
        result = self.verify(*(word for journal in self.journals.values()
                               for word in ("--received", journal.path)))
        if self.failed_posts:
            raise DemoFailed(f"{self.failed_posts} orders were refused")
        return result

    def run(self):
        say = self.display.say
        say(f"Everything runs in {self.folder}, with no server.")
        self.start_order_service()
        self.start_consumers()
        self.write_config()
        self.wait("the consumers are there", lambda: all(map(self.has_mailbox, self.journals)))
        self.start_relay()
        say("1. One order: order and event are written in one transaction, and reach both services.")
        self.post_one_with_curl()
        self.wait_until_quiet()
        say()
        say("2. Orders from several clients, and the relay is killed while they flow.")
        self.take_orders_while_killing_the_relay()
        say()
        say(f"3. {BACKLOG} orders while no relay runs; then it is killed in mid-batch.")
        self.kill_the_relay_in_a_backlog()
        say()
        say(f"4. {REPEATS} events that were delivered are put back into the outbox: repeats.")
        self.put_events_back()
        say()
        say("5. An event with a topic that the route to the notification service does not allow.")
        self.write_an_event_that_fails_for_ever()
        say()
        say("Verdict: what the services committed against what the consumers applied.")
        result = self.verdict()
        if KEEP_RUNNING:
            self.keep_running(result.stdout)
        return result

    def has_mailbox(self, name):
        try:
            return self.waiting(name) == 0
        except sqlite3.OperationalError:
            return False

    def keep_running(self, report):
        print(report, end="")
        print(f"\nStill running, until Ctrl-C. The order service: http://127.0.0.1:{self.port}/health")
        print(f"The databases, journals and logs: {self.folder}")
        print(f"Try: {PROGRAMS}/outbox status --db sqlite://{self.orders_db}", flush=True)
        while True:
            for program in self.programs:
                program.check()
            time.sleep(0.5)

    def stop(self):
        self.stop_clients.set()
        for program in self.programs:
            if program.process.poll() is None:
                program.process.terminate()
        for program in self.programs:
            program.stop()


def interrupted(signal_number, _frame):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal_number)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    folder = tempfile.mkdtemp(prefix="outbox-demo-")
    demo = Demo(folder)
    result = None
    try:
        result = demo.run()
    except DemoFailed as failure:
        demo.display.say(f"The demo failed: {failure}")
    finally:
        demo.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if result is None:
        sys.exit(1)
    print(result.stdout, end="", flush=True)
    lines = result.stdout.splitlines()
    sys.exit(0 if result.returncode == 0 and lines and lines[-1].startswith(EXPECTED + " ") else 1)


main()
