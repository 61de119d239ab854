"""Against the server that DATABASE_URL names, whose database `outbox migrate` has made."""

import os
import threading
import time
import unittest
import uuid

import psycopg
import outbox_client
from outbox_client import (Mailbox, claim_key, complete_key, emit, fence_token, look_for,
                           wait_for)

URL = os.environ["DATABASE_URL"]
LATIN1_URL = os.environ["LATIN1_URL"]


class Client(unittest.TestCase):
    def setUp(self):
        self.db = psycopg.connect(URL, autocommit=True)
        self.addCleanup(self.db.close)
        self.db.execute("CREATE TABLE IF NOT EXISTS effects (n serial, id text)")
        self.db.execute("CREATE TABLE IF NOT EXISTS late (id text UNIQUE DEFERRABLE INITIALLY "
                        "DEFERRED)")
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

    def drain(self, mailbox, handler):
        """Until nothing is left, waits over at once."""
        for _ in range(1000):
            if not mailbox.turn(self.db, handler):
                self.db.execute("UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
                if not self.value("SELECT count(*) FROM outbox_mailbox"):
                    return
        self.fail("it goes on for ever")

    def run_until(self, mailbox, handler, done):
        """In a thread of its own, waits over at once."""
        ended = []
        running = threading.Thread(target=lambda: ended.append(mailbox.run(handler)))
        running.start()
        deadline = time.monotonic() + 60
        try:
            while running.is_alive() and not done():
                self.db.execute("UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
                self.assertLess(time.monotonic(), deadline)
        finally:
            mailbox.stop()
            running.join()
        self.assertEqual(ended, [None], "run returns when it is stopped, and not before")

    def nothing_waits(self):
        return not self.value("SELECT count(*) FROM outbox_mailbox")

    def dead(self):
        return [tuple(row) for row in self.db.execute(
            "SELECT message_id, attempts FROM outbox_inbox_dead_letters ORDER BY 1")]

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

    def test_a_commit_that_fails_counts_for_its_own_message_only(self):
        for id, key in (("a", "a"), ("bad", "k"), ("b", "b"), ("behind", "k"), ("c", "c")):
            self.arrive(id, key)

        def handler(connection, message):
            self.apply(connection, message)
            if message.id == "bad":
                connection.execute("INSERT INTO late VALUES ('twice'), ('twice')")

        mailbox = Mailbox(URL, "billing", max_attempts=2)
        while mailbox.turn(self.db, handler):
            pass
        self.assertEqual(self.value("SELECT string_agg(id || attempts, ' ') FROM "
                                    "outbox_mailbox_tries"), "bad1")
        self.drain(mailbox, handler)
        self.assertEqual(self.effects(), ["a", "b", "c", "behind"])
        self.assertEqual(self.dead(), [("bad", 2)])
        self.assertIn("UniqueViolation",
                      self.value("SELECT error FROM outbox_inbox_dead_letters"))

    def test_a_letter_whose_commit_fails_again_is_dead_again_beside_fresh_messages(self):

        def handler(connection, message):
            self.apply(connection, message)
            if message.id == "bad":
                connection.execute("INSERT INTO late VALUES ('twice'), ('twice')")

        mailbox = Mailbox(URL, "billing", max_attempts=1)
        self.arrive("bad")
        self.drain(mailbox, handler)
        self.db.execute("UPDATE outbox_inbox_dead_letters SET retry_requested_at = now()")
        for id in ("a", "b", "c"):
            self.arrive(id, id)
        self.drain(mailbox, handler)
        self.assertEqual(self.effects(), ["a", "b", "c"])
        self.assertEqual(self.dead(), [("bad", 2)])

    def test_a_message_that_costs_the_session_again_and_again_is_counted_and_others_go_on(self):
        for id, key in (("a", "a"), ("bad", "k"), ("b", "b"), ("behind", "k")):
            self.arrive(id, key)
        tries = []

        def handler(connection, message):
            if message.id == "bad":
                tries.append(message.id)
                connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            self.apply(connection, message)

        mailbox = Mailbox(URL, "billing", max_attempts=2, idle_s=0.01)
        self.run_until(mailbox, handler, self.nothing_waits)
        self.assertEqual(sorted(self.effects()), ["a", "b", "behind"])
        self.assertEqual(self.dead(), [("bad", 2)])
        self.assertEqual(len(tries), 3 + 2, "the first three may have been an outage")

    def test_an_outage_under_a_handler_that_raises_its_own_error_counts_nothing(self):
        self.arrive("a")
        self.arrive("b")
        calls = []

        def handler(connection, message):
            calls.append(message.id)
            if len(calls) == 1:
                self.db.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
                try:
                    while True:
                        connection.execute("SELECT 1")
                except psycopg.Error as error:
                    raise KeyError("of the handler") from error
            self.apply(connection, message)

        mailbox = Mailbox(URL, "billing", max_attempts=1, idle_s=0.01)
        self.run_until(mailbox, handler, self.nothing_waits)
        self.assertEqual(self.effects(), ["a", "b"])
        self.assertEqual(self.dead(), [])

    def test_a_failure_that_cannot_be_told_in_an_outage_is_told_after_it(self):
        self.arrive("bad")
        self.db.execute("CREATE TABLE cut (pid integer); CREATE FUNCTION cut() RETURNS trigger "
                        "LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pid) FROM public.cut "
                        "WHERE pid = pg_backend_pid(); RETURN NEW; END $$;"
                        "CREATE TRIGGER cut BEFORE INSERT ON outbox_mailbox_tries "
                        "FOR EACH ROW EXECUTE FUNCTION cut()")
        self.addCleanup(self.db.execute, "DROP FUNCTION cut CASCADE; DROP TABLE cut")

        def handler(connection, message):
            self.db.execute("INSERT INTO cut VALUES (%s)", (connection.info.backend_pid,))
            raise KeyError("of the handler")

        mailbox = Mailbox(URL, "billing", max_attempts=1, idle_s=0.01)
        self.run_until(mailbox, handler, self.nothing_waits)
        self.assertEqual(self.dead(), [("bad", 1)])

    def test_another_default_isolation_changes_nothing(self):
        database = f"ALTER DATABASE {self.value('SELECT current_database()')} "
        self.addCleanup(self.db.execute, database + "RESET default_transaction_isolation")
        for level in ("repeatable read", "serializable"):
            self.db.execute(database + f"SET default_transaction_isolation = '{level}'")
            self.arrive(level)
            self.run_until(Mailbox(URL, "billing", idle_s=0.01), self.apply, self.nothing_waits)
        self.assertEqual(self.effects(), ["repeatable read", "serializable"])

    def test_a_conflict_is_tried_again_at_once_and_counts_in_the_end(self):
        for wrapped in (False, True):
            self.db.execute("TRUNCATE outbox_mailbox, outbox_inbox, effects, "
                            "outbox_inbox_dead_letters")
            for id, key in (("a", "a"), ("bad", "k"), ("once", "o"), ("behind", "k")):
                self.arrive(id, key)
            calls = []

            def handler(connection, message):
                calls.append(message.id)
                if message.id == "bad" or calls.count("once") == 1:
                    try:
                        connection.execute("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = "
                                           "'40001'; END $$")
                    except psycopg.Error as error:
                        if wrapped:
                            raise KeyError("of the handler") from error
                        raise
                self.apply(connection, message)

            mailbox = Mailbox(URL, "billing", max_attempts=2)
            self.drain(mailbox, handler)
            self.assertEqual(sorted(self.effects()), ["a", "behind", "once"])
            self.assertEqual(self.dead(), [("bad", 2)])
            self.assertEqual(calls.count("bad"), 2 * (20 + 1))

    def test_a_rollback_by_the_handler_is_a_failure(self):
        self.arrive("bad")
        self.arrive("other", "o")

        def handler(connection, message):
            if message.id == "bad":
                raise psycopg.Rollback()
            with connection.transaction():  # a savepoint, which is the handler's own affair
                connection.execute("INSERT INTO effects (id) VALUES ('no')")
                raise psycopg.Rollback()
            self.apply(connection, message)

        mailbox = Mailbox(URL, "billing", max_attempts=1)
        self.drain(mailbox, handler)
        self.assertEqual(self.effects(), ["other"])
        self.assertEqual(self.dead(), [("bad", 1)])

    def test_a_server_that_only_reads_for_a_while_is_waited_out(self):
        name = self.value("SELECT current_database()")
        writes = f'ALTER DATABASE "{name}" RESET default_transaction_read_only'
        self.db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        self.addCleanup(self.db.execute, writes)
        self.arrive("a")
        mailbox = Mailbox(URL, "billing", max_attempts=1, idle_s=0.01)
        with self.assertLogs("outbox_client", "WARNING") as logs:
            def done():
                if len(logs.output) == 2:
                    self.db.execute(writes)
                return self.nothing_waits()

            self.run_until(mailbox, self.apply, done)
        self.assertIn("out of reach", logs.output[1])
        self.assertEqual(self.effects(), ["a"])

    def test_a_database_of_another_encoding_keeps_what_it_can_of_a_cause(self):
        with psycopg.connect(LATIN1_URL, autocommit=True, client_encoding="UTF8") as db:
            db.execute("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES "
                       "('bad', 't', 'Müller', '{\"type\": \"Ü\"}', '{}'), "
                       "('good', 't', 'g', '{}', '{}')")
            seen = []

            def handler(connection, message):
                seen.append((message.key, message.headers))
                if message.id == "bad":
                    raise ValueError("5 € für Müller")

            def done():
                return not db.execute("SELECT count(*) FROM outbox_mailbox").fetchone()[0]

            mailbox = Mailbox(LATIN1_URL, "billing", max_attempts=1, idle_s=0.01)
            self.run_until(mailbox, handler, done)
            self.assertIn(("Müller", {"type": "Ü"}), seen)
            cause = db.execute("SELECT error FROM outbox_inbox_dead_letters").fetchone()[0]
            self.assertEqual(cause, "ValueError: 5 \\u20ac f\\xfcr M\\xfcller")

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
        event_id = self.value("SELECT id FROM outbox_events")
        consumer_url = url
        token = outbox_client.fence_token([event_id])  # goes with the answer, as a header
        with psycopg.connect(consumer_url, autocommit=True) as connection:
            look = outbox_client.wait_for(connection, "billing", token, timeout_s=10)
        self.assertEqual(look.state, "applied")

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

    def relayed(self):
        """What a relay does."""
        self.db.execute("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) SELECT id, "
                        "'orders', 'k', '{}', '1' FROM outbox_events")

    def test_a_token_is_the_one_that_the_database_makes(self):
        ids = [str(uuid.uuid4()) for _ in range(100)]
        for many in (0, 1, 2, 3, 100):
            made = self.db.execute("SELECT outbox_fence(VARIADIC %s::uuid[])",
                                   (ids[:many],)).fetchone()[0]
            self.assertEqual(fence_token(ids[:many]), made)
        self.assertEqual(fence_token([ids[0], ids[1], ids[0]]), fence_token(ids[:2]))
        with self.assertRaisesRegex(ValueError, "up to 100 events, and these are 101"):
            fence_token(ids + [str(uuid.uuid4())])
        with self.assertRaises(ValueError):
            fence_token(["o-1"])

    def test_who_has_the_token_sees_how_far_the_events_are(self):
        with psycopg.connect(URL) as connection:
            ids = [emit(connection, topic="orders", payload={"n": n}) for n in range(2)]
        token = fence_token(ids)
        look = look_for(self.db, "stock", token)
        self.assertEqual((look.state, look.settled), ("unknown", False))
        self.assertEqual(look.events, [{"id": id, "state": "unknown", "why": "not_seen"}
                                       for id in ids])
        self.relayed()
        self.assertEqual(look_for(self.db, "stock", token).state, "waiting")
        self.assertEqual(wait_for(self.db, "stock", token, 0.05).state, "waiting")
        self.drain(Mailbox(URL, "stock", max_attempts=1), self.apply)
        look = wait_for(self.db, "stock", token, 60)
        self.assertEqual((look.state, look.settled), ("applied", True))
        self.assertEqual(look_for(self.db, "billing", token).state, "unknown", "another consumer")

    def test_who_waits_is_told_once_it_is_applied_or_dead(self):
        with psycopg.connect(URL) as connection:
            id = emit(connection, topic="orders", payload={"n": 1})
        looks = []

        def wait():
            with psycopg.connect(URL, autocommit=True) as connection:
                looks.append(wait_for(connection, "stock", fence_token([id]), 60))

        waiting = threading.Thread(target=wait)
        waiting.start()
        self.relayed()

        def refuse(connection, message):
            raise ValueError("no")

        self.drain(Mailbox(URL, "stock", max_attempts=1), refuse)
        waiting.join()
        self.assertEqual(looks[0].state, "dead")
        self.assertEqual(looks[0].events[0]["why"], "dead_letter")

    def test_what_is_no_question_is_refused(self):
        token = fence_token([str(uuid.uuid4())])
        for wrong in ("", "obf1.", token[:-1], token + "A", "obf2" + token[4:]):
            with self.assertRaises(psycopg.Error) as refused:
                look_for(self.db, "stock", wrong)
            self.assertEqual(refused.exception.sqlstate, "22023", wrong)
        with psycopg.connect(URL) as connection, self.assertRaisesRegex(RuntimeError, "autocommit"):
            wait_for(connection, "stock", token, 1)

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

    def test_an_empty_key_is_refused(self):
        with psycopg.connect(URL) as connection:
            with self.assertRaises(psycopg.errors.NullValueNotAllowed) as refused:
                claim_key(connection, "alice", "", "x")
        self.assertIn("wants a scope, a key", str(refused.exception))

    def test_a_claim_that_was_taken_over_keeps_no_answer(self):
        def leased(lease):
            with psycopg.connect(URL) as connection:
                row = connection.execute("SELECT * FROM idempotency_claim('alice', 'key-3', 'x', "
                                         "'1 day', %s::interval)", (lease,)).fetchone()
                return outbox_client.Claim(row[0], row[1], row[2], row[3] or {}, row[4])

        late, owner = leased("0"), leased("1 hour")
        self.assertEqual((late.state, late.attempt, owner.state, owner.attempt),
                         ("new", 1, "new", 2))
        with self.assertRaises(psycopg.Error) as lost:
            with psycopg.connect(URL) as connection:
                connection.execute("INSERT INTO effects (id) VALUES ('late')")
                complete_key(connection, "alice", "key-3", late, 201, {}, b"late")
        self.assertEqual(lost.exception.sqlstate, "OBK01")
        with psycopg.connect(URL) as connection:
            connection.execute("INSERT INTO effects (id) VALUES ('owner')")
            complete_key(connection, "alice", "key-3", owner, 201, {}, b"owner")
        self.assertEqual(self.effects(), ["owner"])
        self.assertEqual(self.value("SELECT convert_from(body, 'UTF8') FROM outbox_idempotency"),
                         "owner")


if __name__ == "__main__":
    unittest.main()
