"""Runs the order saga over four services, breaks it, and checks what arrived and what it did.

usage: demo.py FOLDER_OF_THE_PROGRAMS [--keep-running] [--to URL]
"""

import argparse
import http.client
import json
import os
import random
import secrets
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

from demo_parts import DemoFailed, Display, Program, Received

PARSER = argparse.ArgumentParser()
PARSER.add_argument("programs")
PARSER.add_argument("--keep-running", action="store_true")
PARSER.add_argument("--to")
ARGUMENTS = PARSER.parse_args()
PROGRAMS = ARGUMENTS.programs
KEEP_RUNNING = ARGUMENTS.keep_running
BROKER = ARGUMENTS.to  # of the user's own, which gets these events, too
BROKER_EVENTS = ["OrderCreated", "OrderConfirmed", "OrderCancelled"]  # of the topic order-events

SERVICES = ("order", "inventory", "payment", "notification")
LISTENERS = {  # who speaks: who listens
    "order": ("inventory", "payment", "notification"),
    "inventory": ("payment", "order"),
    "payment": ("order",),
}
LAST_TABLE = {"order": "order_counters", "inventory": "reservations", "payment": "payments", "notification": "mails"}
CLIENTS = 4
USERS = 12
CREDIT = "8000.00"  # of each user, so that some payments are refused
STOCK = 1000  # of each product
CANCELLED = 0.05  # of the orders, by the customer, at once
BACKLOG = 240  # orders taken while no relay runs
MAX_DOUBLINGS = 6
REPEATS = 40  # events put back into the outbox after they were delivered
BATCH_SIZE = 20  # small, so that there is a middle to kill the relay in
JSON = {"Content-Type": "application/json"}
DEADLINE_S = 60  # of every single wait
EXPECTED = "lost 0, ghosts 0, out of order 0, repeats applied 0, never applied 0, dead letters 1"


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.display = Display()
        self.running = {}  # by name
        self.port = 0
        self.dashboard = ""  # its address
        self.failed_posts = 0
        self.stop_clients = threading.Event()
        self.orders_db = self.path("order.db")
        self.received = {name: Received(self.path(name + "-received"), LISTENERS) for name in SERVICES}

    def path(self, name):
        return os.path.join(self.folder, name)

    # --- the programs

    @property
    def programs(self):
        return list(self.running.values())

    def start(self, name, command, environment=None):
        self.running[name] = Program(PROGRAMS, self.folder, name, command, environment)
        return self.running[name]

    def kill(self, name):
        self.running.pop(name).kill()

    def start_service(self, side):
        options = {
            "order": ["--order-by", "user", "--events", "mailbox:"],
            "inventory": ["--stock", str(STOCK)],
            "payment": ["--credit", CREDIT],
            "notification": ["--mails", self.path("mails.jsonl")],
        }
        name = side + "-service"
        journals = ["--journal", self.path(side + ".jsonl"), "--received", self.path(side + "-received")]
        return self.start(
            name,
            [name, *journals, *options[side]],
            {"DATABASE_URL": self.url(side), "PORT": "0"},
        )

    def start_services(self):
        for side in SERVICES:
            self.start_service(side)

        def listening():
            with open(self.running["order-service"].out_path) as out:
                words = out.read().split("listening on http://127.0.0.1:")
            self.port = int(words[1]) if len(words) == 2 and words[1].endswith("\n") else 0
            return self.port != 0

        self.wait("the order service listens", listening)
        self.wait("the others are there", lambda: all(map(self.is_ready, SERVICES)))

    def start_relay(self, side):
        """A relay for each service that speaks, with a route to each that listens."""
        config = [f"batch_size = {BATCH_SIZE}", "[source]", f'url = "{self.url(side)}"']
        for listener in LISTENERS[side]:
            config += ["[[route]]", f'name = "{listener}"', f'to = "mailbox+{self.url(listener)}"']
            if listener == "notification":
                config += ['allowed_topics = ["order-events"]']
        if BROKER and side == "order":
            config += ["[[route]]", 'name = "broker"', f"to = {json.dumps(BROKER)}",
                       f"event_type = {json.dumps(BROKER_EVENTS)}"]
        with open(self.path(side + "-relay.toml"), "w") as file:
            file.write("\n".join(config) + "\n")
        os.chmod(file.name, 0o600)
        self.start(side + "-relay", ["outbox", "relay", "--config", file.name, "--admin", "off"])

    def start_dashboard(self):
        """The order service's outbox and its three consumers, for a browser, from the first order on."""
        token = self.path("dashboard-token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        consumers = [word for name in LISTENERS["order"] for word in ("--consumer-db", self.url(name))]
        dashboard = self.start("dashboard", ["outbox", "dashboard", "--from", self.url("order"), *consumers,
                                             "--listen", "127.0.0.1:0", "--admin-token-file", token])

        def listening():
            with open(dashboard.out_path) as out:
                self.dashboard = out.readline().strip()
            return self.dashboard.endswith("/")

        self.wait("the dashboard listens", listening)
        self.display.say(f"Watch it in a browser: {self.dashboard} (the token for changes is in {token})")

    # --- looking

    def url(self, side):
        return "sqlite://" + self.path(side + ".db")

    def rows(self, side, sql, *parameters):
        connection = sqlite3.connect(f"file:{self.path(side + '.db')}?mode=ro", uri=True, timeout=DEADLINE_S)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def query(self, side, sql, *parameters):
        """The first column of the first row; none where there is no row."""
        rows = self.rows(side, sql, *parameters)
        return rows[0][0] if rows else None

    def pending(self, side="order"):
        return self.query(side, "SELECT count(*) FROM outbox_events")

    WRITTEN = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox_events'), 0)"

    def written(self, side):
        """Events that were ever written; positions have no gaps here."""
        return self.query(side, self.WRITTEN)

    def recorded(self):
        """Events of the order service that the relay is done with."""
        return self.query("order", self.WRITTEN + " - (SELECT count(*) FROM outbox_events)")

    def waiting(self, name):
        return self.query(name, "SELECT count(*) FROM outbox_mailbox")

    def delivered(self, name):
        """Messages that reached the mailbox, repeats included."""
        received = self.received[name]
        received.refresh()
        return received.applied + received.repeats + self.waiting(name)

    def figures(self):
        """Lines for a terminal, and the same in one line."""
        orders = dict(self.rows("order", "SELECT status, count(*) FROM orders GROUP BY status"))
        confirmed, cancelled = (orders.get(status, 0) for status in ("CONFIRMED", "CANCELLED"))
        pending = sum(map(self.pending, LISTENERS))
        summary = (
            f"   orders {sum(orders.values())}: {confirmed} confirmed, {cancelled} cancelled, "
            f"{orders.get('CREATED', 0)} under way; pending events {pending}"
        )
        delivered = {name: self.delivered(name) for name in SERVICES}
        received = self.received
        lines = [
            f"   {name:12}  delivered {delivered[name]:5}  applied {received[name].applied:5}  "
            f"repeats dropped {received[name].repeats:3}"
            for name in SERVICES
        ]
        plain = f"; delivered {sum(delivered.values())}, applied {sum(r.applied for r in received.values())}, "
        return [summary, *lines], summary + plain + f"repeats dropped {sum(r.repeats for r in received.values())}"

    def wait(self, what, condition, pause_s=0.05, show=False):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for program in self.programs:
                program.check()
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {p.name}\n{p.log_tail()}" for p in self.programs)
                raise DemoFailed(f"waited {DEADLINE_S} s in vain until {what}\n{logs}")
            if show:
                self.display.figures(*self.figures())
            time.sleep(pause_s)

    def wait_until_quiet(self):
        def quiet():
            # An event that is in neither was applied, and one that it caused would be counted.
            written = sum(map(self.written, LISTENERS))
            if any(map(self.pending, LISTENERS)) or any(map(self.waiting, SERVICES)):
                return False
            return written == sum(map(self.written, LISTENERS))

        self.wait("everything is delivered and applied", quiet, show=True)
        self.display.final_figures(*self.figures())

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
                connection.request("POST", "/api/orders", json.dumps(self.new_order()), JSON)
                answer = connection.getresponse()
                body = answer.read()
                self.failed_posts += answer.status != 201
                posted += 1
                if answer.status == 201 and random.random() < CANCELLED:
                    connection.request("POST", f"/api/orders/{json.loads(body)['id']}/cancel")
                    answer = connection.getresponse()
                    answer.read()
                    self.failed_posts += answer.status not in (200, 409)
        except (OSError, http.client.HTTPException):
            self.failed_posts += 1
        connection.close()

    def run_clients(self, count=None):
        self.stop_clients.clear()
        clients = [threading.Thread(target=self.post_orders, args=(count,), daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        return clients

    def curl(self, *arguments):
        command = ["curl", "-sS", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.display.say("$ " + shlex.join(command))
        self.display.say(answer.stdout.strip() + answer.stderr.strip())
        return answer.stdout

    def course(self, order):
        """What has become of an order so far, from the tables of three services."""
        status = self.query("order", "SELECT status FROM orders WHERE id = ?", order)
        payment = self.query("payment", "SELECT state FROM payments WHERE order_id = ?", order)
        stock = self.query("inventory", "SELECT state FROM reservations WHERE order_id = ?", order)
        steps = ["order CREATED"]
        if stock is not None:
            steps.append("stock " + ("RESERVED" if stock == "RELEASED" else stock))
        if payment is not None:
            steps.append("payment " + payment)
        if status != "CREATED":
            steps.append("order " + status)
        if stock == "RELEASED":
            steps.append("stock RELEASED")
        return steps

    def post_one_with_curl(self, user, amount, last_step):
        body = f'{{"user_id":"{user}","product_id":"p-1","quantity":2,"total_amount":{amount}}}'
        url = f"http://127.0.0.1:{self.port}/api/orders"
        answer = self.curl("-X", "POST", url, "-H", "Content-Type: application/json", "-d", body)
        started = time.monotonic()
        if '"status":"CREATED"' not in answer:
            raise DemoFailed("the order service refused the order")
        order = json.loads(answer)["id"]
        steps = []

        def arrived():
            nonlocal steps
            steps = self.course(order)
            return steps[-1] == last_step

        self.wait(f"the order arrives at: {last_step}", arrived, pause_s=0.002)
        self.display.say(f"   {' -> '.join(steps)}  ({(time.monotonic() - started) * 1000:.0f} ms)")
        return order

    def show_one_order_of_each_kind(self):
        self.post_one_with_curl("u-1", "99.99", "order CONFIRMED")
        refused = self.post_one_with_curl("u-2", "25000.00", "stock RELEASED")
        self.curl(f"http://127.0.0.1:{self.port}/api/orders/{refused}")
        self.wait_until_quiet()

    def kill_relay_between_delivering_and_recording(self):
        """Starts the relay on a backlog. As soon as it has recorded some of it, holds the outbox's
        write lock, so that it delivers more and cannot record it; then kills it. False: it was
        through with the backlog already."""
        before, recorded_before, reached = self.pending(), self.recorded(), self.delivered("inventory")
        self.start_relay("order")
        self.wait("the relay has recorded some", lambda: self.recorded() > recorded_before, pause_s=0.0005)
        with self.writer() as connection:
            connection.execute("BEGIN IMMEDIATE")
            recorded = self.recorded() - recorded_before
            in_the_middle = self.pending() > 0
            if in_the_middle:
                self.wait("it delivers more", lambda: self.delivered("inventory") > reached + recorded)
            self.kill("order-relay")
            more = self.delivered("inventory") - reached - recorded
        if not in_the_middle:
            return False
        self.display.say(
            f"   SIGKILL to the relay: of {before} events {recorded} were delivered and recorded, "
            f"{more} delivered and not recorded"
        )
        return True

    def take_orders_while_killing(self):
        clients = self.run_clients()
        for relay, service in (("order", "payment"), ("inventory", "inventory")):
            busy_until = time.monotonic() + 0.7
            self.wait("orders flow", lambda: time.monotonic() > busy_until, show=True)
            self.kill(relay + "-relay")
            self.kill(service + "-service")
            self.display.say(
                f"   SIGKILL to the relay of the {relay} service and to the {service} service, "
                f"{sum(map(self.pending, LISTENERS))} events pending"
            )
            self.start_relay(relay)
            self.start_service(service)
        self.stop_clients.set()
        for client in clients:
            client.join()
        self.wait_until_quiet()

    def kill_the_relay_in_a_backlog(self):
        self.kill("order-relay")
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
        self.start_relay("order")
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
        payload = {"order_id": "by-hand"}
        with open(self.path("by-hand.jsonl"), "w") as journal:
            entry = {"id": event_id, "key": "by-hand", "n": 1}
            journal.write(json.dumps({**entry, "state": "intent"}) + "\n")
            with self.writer() as connection:
                connection.execute(
                    "INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers, topic)"
                    " VALUES (?, 'Order', 'by-hand', 'OrderPraised', ?, '{\"n\":\"1\"}', 'secret-orders')",
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

    def outbox_verify(self, side, *received):
        command = [os.path.join(PROGRAMS, "outbox"), "verify", "--produced", side + ".jsonl"]
        if side == "order":
            command += ["--produced", "by-hand.jsonl"]
        command += [*received, "--db", self.url(side)]
        return self.check_with(command)

    def check_with(self, command):
        self.display.say("$ " + shlex.join([os.path.basename(command[0])] + command[1:]))
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                                cwd=self.folder)
        if result.stderr:
            print(result.stderr, file=sys.stderr, end="", flush=True)
        return result

    def verdict(self):
        """Every event of three outboxes, the mails that went out, the books of four services; the
        last result is shown at the end of all."""
        received = {
            side: [word for name in listeners
                   for word in ("--received", f"{name}-received/{side}.jsonl")]
            for side, listeners in LISTENERS.items()
        }
        audit = [os.path.join(PROGRAMS, "orders-audit"), "--orders", self.url("order"),
                 "--inventory", self.url("inventory"), "--payments", self.url("payment"),
                 "--notifications", self.url("notification"), "--mails", "mails.jsonl"]
        checks = [
            lambda: self.outbox_verify("inventory", *received["inventory"]),
            lambda: self.outbox_verify("payment", *received["payment"]),
            # What a consumer's journal says is what it believes; the mails are what it did.
            lambda: self.outbox_verify("order", "--effect-db", self.url("notification"), "--effect-query",
                                       "SELECT idempotency_key FROM mails ORDER BY rowid"),
            lambda: self.check_with(audit),
        ]
        for check in checks:
            result = check()
            if result.returncode != 0:
                return result
            self.display.say(result.stdout.strip().splitlines()[-1])
        result = self.outbox_verify("order", *received["order"])
        if self.failed_posts:
            raise DemoFailed(f"{self.failed_posts} orders were refused")
        return result

    def check_broker(self):
        """Says now what would stop the events later."""
        command = [os.path.join(PROGRAMS, "outbox"), "relay", "--check", "--admin", "off",
                   "--from", self.url("order"), "--to", BROKER]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if result.returncode != 0:
            raise DemoFailed(f"outbox relay --check says of the broker:\n{result.stdout}{result.stderr}")

    def say_what_the_broker_got(self):
        """The outbox is empty, so each event is acknowledged or a dead letter of the route. What is in
        the broker nobody has looked at."""
        dead = self.query("order", "SELECT count(*) FROM outbox_dead_letters WHERE route = 'broker'")
        if dead:
            raise DemoFailed(f"your broker was not given {dead} events: see outbox dead list --db {self.url('order')}")
        with open(self.path("order.jsonl")) as journal:
            lines = [json.loads(line) for line in journal]
        events = {line["id"] for line in lines if line.get("state", "committed") == "committed"}
        where = BROKER.rsplit("@", maxsplit=1)[-1].split("?")[0]
        self.display.say(f"Your broker, {where}, has acknowledged each of the {len(events)} events of topic order-events.")

    def run(self):
        say = self.display.say
        say(f"Everything runs in {self.folder}, with no server: four services with a database each.")
        self.start_services()
        if BROKER:
            self.check_broker()
        for side in LISTENERS:
            self.start_relay(side)
        if KEEP_RUNNING:
            self.start_dashboard()
        say("1. Two orders. Each step is one transaction: event received, tables changed, event written.")
        self.show_one_order_of_each_kind()
        say()
        say("2. Orders from several clients, and relays and services are killed while they flow.")
        self.take_orders_while_killing()
        say()
        say(f"3. {BACKLOG} orders while no relay takes them on; then it is killed in mid-batch.")
        self.kill_the_relay_in_a_backlog()
        say()
        say(f"4. {REPEATS} events that were delivered are put back into the outbox: repeats.")
        self.put_events_back()
        say()
        say("5. An event with a topic that the route to the notification service does not allow.")
        self.write_an_event_that_fails_for_ever()
        say()
        say("Verdict: what the services committed against what the others applied, and their books.")
        result = self.verdict()
        if BROKER:
            self.say_what_the_broker_got()
        if KEEP_RUNNING:
            self.keep_running(result.stdout)
        return result

    def is_ready(self, side):
        """Whether its last table is there: a service makes the outbox's tables before its own."""
        try:
            return self.query(side, f"SELECT count(*) FROM {LAST_TABLE[side]}") is not None
        except sqlite3.OperationalError:
            return False

    def keep_running(self, report):
        print(report, end="")
        print(f"\nStill running, until Ctrl-C. The order service: http://127.0.0.1:{self.port}/health")
        print(f"The dashboard: {self.dashboard}, the token for changes: {self.path('dashboard-token')}")
        print(f"The databases, journals and logs: {self.folder}")
        print(f"Try: {PROGRAMS}/outbox status --db {self.url('order')}", flush=True)
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
