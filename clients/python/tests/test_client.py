"""Against the server that DATABASE_URL names, whose database `outbox migrate` has made."""

import os
import threading
import unittest

import psycopg
import outbox_client
from outbox_client import Mailbox, claim_key, complete_key, emit

URL = os.environ["DATABASE_URL"]


class Client(unittest.TestCase):
    def setUp(self):
        self.db = psycopg.connect(URL, autocommit=True)
        self.addCleanup(self.db.close)
        self.db.execute("CREATE TABLE IF NOT EXISTS effects (n serial, id text)")
        self.db.execute("TRUNCATE outbox_events, outbox_mailbox, outbox_mailbox_tries, "
                        "outbox_inbox, outbox_inbox_dead_letters, outbox_idempotency, effects")

    def value(self, sql):
        return self.db.execute(sql).fetchone()[0]

    def arrive(self, id, key="k"):
        self.db.execute("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) "
                        "VALUES (%s, 'orders', %s, '{\"type\": \"A\"}', '{\"n\": 1}')", (id, key))

    @staticmethod
    def apply(connection, message):
        connection.execute("INSERT INTO effects (id) VALUES (%s)", (message.id,))

    def effects(self):
        return [row[0] for row in self.db.execute("SELECT id FROM effects ORDER BY n")]

    def test_the_version_is_the_products(self):
        self.assertEqual(outbox_client.__version__, os.environ["OUTBOX_VERSION"])
        folder = os.path.dirname(os.path.dirname(outbox_client.__file__))
        with open(os.path.join(folder, "pyproject.toml")) as file:
            self.assertIn(f'version = "{outbox_client.__version__}"', file.read())

    def test_an_event_commits_with_the_transaction_or_not_at_all(self):
        with self.assertRaises(RuntimeError):
            emit(self.db, topic="orders", payload={})
        with psycopg.connect(URL) as connection:
            id = emit(connection, aggregate_type="Order", aggregate_id="o-1", payload={"n": 1},
                      headers={"a": "b"})
        with psycopg.connect(URL) as connection:
            emit(connection, topic="orders", payload="2")
            connection.rollback()
        self.assertEqual(self.value("SELECT string_agg(id::text, ' ') FROM outbox_events"), id)
        self.assertEqual(self.value("SELECT headers ->> 'a' FROM outbox_events"), "b")

    def test_messages_are_applied_once_and_in_order(self):
        for id in ("a", "b", "a2"):
            self.arrive(id)
        mailbox = Mailbox(URL, "billing", idle_s=0.01)
        self.assertTrue(mailbox.turn(self.db, self.apply))
        self.arrive("b")  # a repeat
        mailbox.turn(self.db, self.apply)
        self.assertFalse(mailbox.turn(self.db, self.apply))
        self.assertEqual(self.effects(), ["a", "b", "a2"])

    def test_a_failing_message_is_tried_again_and_then_dead_and_others_go_on(self):
        for id, key in (("bad", "k"), ("behind", "k"), ("other", "o")):
            self.arrive(id, key)

        def handler(connection, message):
            self.assertEqual((message.json(), message.headers), ({"n": 1}, {"type": "A"}))
            if message.id == "bad":
                connection.execute("SELECT 1 / 0")
            self.apply(connection, message)

        mailbox = Mailbox(URL, "billing", max_attempts=2)
        with self.assertLogs("outbox_client", "WARNING"):
            self.assertTrue(mailbox.turn(self.db, handler))
        self.assertTrue(mailbox.turn(self.db, handler))
        self.assertEqual(self.effects(), ["other"])
        self.db.execute("UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
        self.assertTrue(mailbox.turn(self.db, handler))
        self.assertTrue(mailbox.turn(self.db, handler))
        self.assertEqual(self.effects(), ["other", "behind"])
        self.assertIn("DivisionByZero", self.value("SELECT error FROM outbox_inbox_dead_letters"))

    def test_members_run_until_they_are_stopped_and_share_the_work(self):
        expected = [f"m{n:03}" for n in range(60)]
        for n, id in enumerate(expected):
            self.arrive(id, str(n % 5))
        done = threading.Semaphore(0)

        def handler(connection, message):
            self.apply(connection, message)
            done.release()

        members = [Mailbox(URL, "billing", batch=7, idle_s=0.01) for _ in range(3)]
        threads = [threading.Thread(target=member.run, args=(handler,)) for member in members]
        for thread in threads:
            thread.start()
        for _ in expected:
            self.assertTrue(done.acquire(timeout=60))
        for member in members:
            member.stop()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(self.effects()), expected)

    def test_a_database_that_does_not_answer_is_said(self):
        mailbox = Mailbox("postgresql://nobody@127.0.0.1:1/x", "billing", idle_s=0.01)
        with self.assertLogs("outbox_client", "WARNING") as logs:
            running = threading.Thread(target=mailbox.run, args=(self.apply,))
            running.start()
            while not logs.output:
                pass
            mailbox.stop()
            running.join()
        self.assertIn("out of reach", logs.output[0])

    def test_the_readme(self):
        url = URL
        self.db.execute("CREATE TABLE IF NOT EXISTS orders (id text)")
        self.db.execute("CREATE TABLE IF NOT EXISTS invoices (order_id text)")
        self.db.execute("TRUNCATE orders, invoices")
        with psycopg.connect(url) as connection:  # one transaction
            connection.execute("INSERT INTO orders (id) VALUES ('o-1')")
            outbox_client.emit(connection, aggregate_type="Order", aggregate_id="o-1",
                               event_type="OrderPlaced", payload={"order_id": "o-1"})
        # What a relay does.
        self.db.execute("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) SELECT id, "
                        "'order-events', aggregate_id, '{}', convert_to(payload::text, 'UTF8') "
                        "FROM outbox_events")

        def bill(connection, message):  # in the transaction that takes the message
            connection.execute("INSERT INTO invoices (order_id) VALUES (%s)",
                               (message.json()["order_id"],))

        mailbox = outbox_client.Mailbox(url, consumer="billing")

        def run():
            mailbox.run(bill)  # until stop(), from another thread or a signal handler

        running = threading.Thread(target=run)
        running.start()
        while self.value("SELECT count(*) FROM outbox_mailbox"):
            pass
        mailbox.stop()
        running.join()
        self.assertEqual(self.value("SELECT string_agg(order_id, ' ') FROM invoices"), "o-1")

        def answer(caller, key, fingerprint):
            with psycopg.connect(url) as connection:
                claim = outbox_client.claim_key(connection, caller, key, fingerprint)
                if claim.state == "repeat":
                    return claim.status, claim.body
                if claim.state != "new":
                    return (409 if claim.state == "running" else 422), b""
                body = b"placed\n"  # the request's work, in the same transaction
                outbox_client.complete_key(connection, caller, key, claim, 201, {}, body)
                return 201, body

        for _ in range(2):
            self.assertEqual(answer("alice", "readme", "x"), (201, b"placed\n"))

    def test_a_request_that_comes_again_gets_its_first_answer(self):
        def answer(fingerprint):
            with psycopg.connect(URL) as connection:
                claim = claim_key(connection, "alice", "key-1", fingerprint)
                if claim.state != "new":
                    return claim
                complete_key(connection, "alice", "key-1", claim, 201, {"A": "b"}, b"made")
                return claim

        self.assertEqual(answer("x").state, "new")
        repeat = answer("x")
        self.assertEqual((repeat.state, repeat.status, repeat.headers, repeat.body),
                         ("repeat", 201, {"A": "b"}, b"made"))
        self.assertEqual(answer("y").state, "mismatch")


if __name__ == "__main__":
    unittest.main()
