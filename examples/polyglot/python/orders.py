"""Orders and their billing, in Python; the folder above says what the commands do.

usage: orders.py emit|consume|receive|serve
"""

import contextlib
import hashlib
import http.server
import json
import os
import signal
import sys
import threading

import confluent_kafka
import psycopg

MAX_BODY_BYTES = 65536
stopping = threading.Event()


def store_order(connection, order, customer, cents):
    """The business row; its lock makes writers of one order wait for each other."""
    row = connection.execute(
        "INSERT INTO orders (id, customer, cents) VALUES (%s, %s, %s) "
        "ON CONFLICT (id) DO UPDATE SET cents = orders.cents + excluded.cents, "
        "version = orders.version + 1 RETURNING version",
        (order, customer, cents),
    ).fetchone()
    return {"order_id": order, "version": row[0], "cents": cents}


def place_order(connection, order, customer, cents):
    with connection.transaction():
        placed = store_order(connection, order, customer, cents)
        connection.execute(
            "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('Order', %s, 'OrderPlaced', %s)",
            (order, json.dumps(placed)),
        )
    return placed["version"]


def emit():
    refused = 0
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for line in sys.stdin:
            order, customer, cents = line.split()
            try:
                print("placed", order, place_order(connection, order, customer, int(cents)))
            except psycopg.Error as error:
                print("refused", order, error, file=sys.stderr)
                refused += 1
    return 1 if refused else 0


def bill(connection, record):
    headers = {name: value.decode() for name, value in record.headers()}
    event = json.loads(record.value())
    with connection.transaction():
        new = connection.execute(
            "SELECT inbox_accept('billing', %s, %s)", (headers["id"], headers["occurred_at"])
        ).fetchone()[0]
        if new:
            connection.execute(
                "INSERT INTO invoices (order_id, version, cents) VALUES (%s, %s, %s) "
                "ON CONFLICT (order_id) DO UPDATE SET version = excluded.version, "
                "cents = invoices.cents + excluded.cents",
                (event["order_id"], event["version"], event["cents"]),
            )
    print("applied" if new else "repeat", event["order_id"], event["version"], flush=True)


def consume():
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": os.environ["KAFKA_BROKERS"],
        "group.id": os.environ["KAFKA_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    })
    consumer.subscribe([os.environ["KAFKA_TOPIC"]])
    with contextlib.closing(consumer), psycopg.connect(
            os.environ["DATABASE_URL"], autocommit=True) as connection:
        while not stopping.is_set():
            record = consumer.poll(0.2)
            if record is None:
                continue
            if record.error():
                print(record.error(), file=sys.stderr)  # the client goes on by itself
                continue
            bill(connection, record)
            consumer.commit(record, asynchronous=False)
    return 0


def bill_from_mailbox(connection):
    """Takes and applies in one transaction; False where nothing was there."""
    position, billed = None, []
    try:
        with connection.transaction():
            messages = connection.execute(
                "SELECT position, payload FROM outbox_mailbox_take('billing', 'default', 100)"
            ).fetchall()
            for position, payload in messages:
                event = json.loads(payload)
                connection.execute(
                    "INSERT INTO invoices (order_id, version, cents) VALUES (%s, %s, %s) "
                    "ON CONFLICT (order_id) DO UPDATE SET version = excluded.version, "
                    "cents = invoices.cents + excluded.cents",
                    (event["order_id"], event["version"], event["cents"]),
                )
                connection.execute(
                    "SELECT outbox_mailbox_done('billing', 'default', %s)", (position,)
                )
                billed.append(event)
    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
        return True  # nothing happened; again
    except Exception as error:
        if position is None or connection.broken:
            raise
        # All of it was rolled back; the others come again at once, this one and its key later.
        connection.execute(
            "SELECT outbox_mailbox_failed('billing', 'default', %s, %s)", (position, repr(error))
        )
        print("failed", position, repr(error), file=sys.stderr)
        return True
    for event in billed:
        print("applied", event["order_id"], event["version"], flush=True)
    return bool(messages)


def receive():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while not stopping.is_set():
            if not bill_from_mailbox(connection):
                stopping.wait(0.1)
    return 0


def parse_order(body):
    order = json.loads(body)
    if not (isinstance(order, dict) and type(order.get("order_id")) is str
            and type(order.get("cents")) is int):
        raise ValueError("order_id (text) and cents (a whole number) are needed")
    return order


def answer(connection, caller, key, body):
    """Status, headers and body for POST /orders; claim, order, event and answer commit together."""
    order = parse_order(body)
    request = hashlib.sha256(b"POST /orders\n" + body).hexdigest()
    with connection.transaction():
        state, attempt, status, headers, stored = connection.execute(
            "SELECT * FROM idempotency_claim(%s, %s, %s)", (caller, key, request)
        ).fetchone()
        if state == "running":
            return 409, {"Retry-After": "1"}, b""
        if state == "mismatch":
            return 422, {}, b"the key was used for another request\n"
        if state == "repeat":
            return status, headers, stored
        placed = json.dumps(store_order(connection, order["order_id"], caller, order["cents"]))
        connection.execute(
            "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => %s, "
            "event_type => 'OrderPlaced', payload => %s)",
            (order["order_id"], placed),
        )
        headers = {"Content-Type": "application/json"}
        connection.execute(
            "SELECT idempotency_complete(%s, %s, %s, 201, %s, %s)",
            (caller, key, attempt, json.dumps(headers), placed.encode()),
        )
        return 201, headers, placed.encode()


class Orders(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        # Whoever stands before this service has authenticated the caller.
        caller, key = self.headers.get("X-User"), self.headers.get("Idempotency-Key")
        size = self.headers.get("Content-Length", "0")
        body = self.rfile.read(min(int(size), MAX_BODY_BYTES + 1)) if size.isdecimal() else b""
        if self.path != "/orders":
            return self.reply(404, {}, b"")
        if len(body) > MAX_BODY_BYTES:
            return self.reply(413, {}, b"")
        if not caller or not key or len(key) > 255:
            return self.reply(400, {}, b"X-User and Idempotency-Key (up to 255 bytes) are needed\n")
        try:
            with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
                result = answer(connection, caller, key, body)
        except ValueError as error:
            result = 400, {}, f"not an order: {error}\n".encode()
        except psycopg.IntegrityError as error:
            result = 422, {}, f"refused: {error}\n".encode()
        except psycopg.Error as error:
            print(error, file=sys.stderr)
            result = 500, {}, b"rolled back; send it again with the same key\n"
        self.reply(*result)

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def serve():
    address = ("127.0.0.1", int(os.environ["PORT"]))
    with http.server.ThreadingHTTPServer(address, Orders) as server:
        print("listening", server.server_port, flush=True)
        server.serve_forever()


def stop(_signal, _frame):
    """`consume` and `receive` end in order, `serve` at once: what is not committed rolls back."""
    stopping.set()
    if sys.argv[1] not in ("consume", "receive"):
        sys.exit(0)


if __name__ == "__main__":
    commands = {"emit": emit, "consume": consume, "receive": receive, "serve": serve}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, stop)
    sys.exit(commands[sys.argv[1]]())
