"""The dashboard in a real Chromium, on a real PostgreSQL with 100,000 dead letters and a relay that runs.

usage: browser_test.py OUTBOX ROOT
OUTBOX_SCREENSHOTS=DIR: also writes the screenshots of the guide there.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

OUTBOX, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
TOKEN = "a token that nobody guesses"
LETTERS = 100_000
PATIENCE_S = int(os.environ.get("OUTBOX_PATIENCE_S", "60"))
PAGE_S = 1.0  # of a processor, which a page of dead letters may take; its time is printed
KEPT = {"relay-light": "flow", "desktop-dark-dead-letters": "dead-letters", "phone-light-flow": "phone", "replays": "replays"}
expect.set_options(timeout=PATIENCE_S * 1000)
HOSTILE = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
SAGAS = """INSERT INTO outbox_saga (saga_id, name, version, state, step, steps, data, leader, topic, timer, trouble)
VALUES ('00000000-0000-7000-8000-0000000000aa', 'order', 1, 'stuck', 'charge',
'[{"step":"reserve","state":"done","attempts":1,"late":0,"can_undo":true},
  {"step":"charge","state":"sent","attempts":3,"late":0,"can_undo":false}]',
'{"order":"o-1"}', 'orders', 'order-answers', 3, 'no answer to charge after 3 attempts'),
('00000000-0000-7000-8000-0000000000ab', 'order', 1, 'running', 'reserve',
'[{"step":"reserve","state":"sent","attempts":1,"late":0,"can_undo":true}]', '{}', 'orders', 'order-answers', 1, NULL)"""

REPLAYS = f"""INSERT INTO outbox_replays (run, source, route, selection, destination, met, rate, as_new, reason, os_user,
    state, expected, sent, refused, refusals, place_end, error, runner, runner_until, rate_per_s, started_at, updated_at, ended_at)
SELECT v.run, 'public.outbox_events', 'billing', v.selection, v.destination, '', 500, v.as_new, v.reason, 'ann', v.state, v.expected,
    v.sent, v.refused, v.refusals, '', v.error, v.runner, v.until, 0, now() - interval '2 hours', now(), v.ended FROM (VALUES
('00000000-0000-4000-8000-0000000000b1', '{{"dead":true,"key":"o-1"}}', '', false, 'the host of the run was killed', 'running',
    5000, 1200, 0, '[]', '', 'host-a:4711', now() - interval '1 hour', NULL::timestamptz),
('00000000-0000-4000-8000-0000000000b2', '{{"since_us":1767225600000000,"tenants":["acme"]}}', 'kafka://spare:9092', true, $x${HOSTILE}$x$, 'failed',
    900, 10, 3, '[{{"id":"e-9","key":"o-9","error":"OB_RECORD_REFUSED: amount is a text"}}]', $x$OB_DESTINATION_CHANGED: {HOSTILE}$x$, '', NULL, NULL),
('00000000-0000-4000-8000-0000000000b3', '{{"event_type":"OrderPaid"}}', '', false, 'billing lost a volume', 'finished',
    700, 700, 0, '[]', '', '', NULL, now() - interval '1 hour'),
('00000000-0000-4000-8000-0000000000b4', '{{}}', '', false, 'a test', 'cancelled', 700, 1, 0, '[]', '', '', NULL, now() - interval '1 hour')
) v (run, selection, destination, as_new, reason, state, expected, sent, refused, refusals, error, runner, until, ended)"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="outbox-browser-"))
        cls.folder.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.server("start")
        cls.addClassCleanup(cls.server, "wipe")
        os.environ["PGPASSFILE"] = str(cls.folder / "server/data/pgpass")
        cls.base = f"postgresql://postgres@127.0.0.1:{(cls.folder / 'server/port').read_text().strip()}"
        for name in ("shop", "billing"):
            cls.psql("postgres", f"CREATE DATABASE {name}")
        cls.outbox("migrate", "--db", f"{cls.base}/shop")
        cls.outbox("migrate", "--db", f"{cls.base}/billing", "--only", "consumer")
        cls.token = cls.folder / "token"
        cls.token.write_text(TOKEN)
        cls.token.chmod(0o600)
        (cls.folder / "outbox.toml").write_text('on_dead_letter = "block_key"\n')
        cls.admin = free_port()
        cls.start_relay()
        cls.addClassCleanup(lambda: cls.end(cls.relay))
        cls.begin_writing()
        wait_for("the route is known", lambda: cls.psql("shop", "SELECT count(*) FROM outbox_route_stats") == "2")
        cls.fill()
        cls.page_url = cls.start_dashboard()
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"])
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def server(cls, verb):
        subprocess.run([ROOT / "script/servers/postgres", verb, "--dir", cls.folder / "server"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def psql(cls, database, sql):
        done = subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", f"{cls.base}/{database}"],
                              input=sql, text=True, capture_output=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    @classmethod
    def outbox(cls, *arguments):
        subprocess.run([OUTBOX, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=cls.folder)

    @classmethod
    def start(cls, name, *arguments):
        with open(cls.folder / f"{name}.out", "w") as out:
            return subprocess.Popen([OUTBOX, *arguments], stdout=out, stderr=subprocess.STDOUT, cwd=cls.folder)

    @staticmethod
    def end(process):
        process.terminate()
        process.wait(PATIENCE_S)

    @classmethod
    def start_relay(cls):
        cls.relay = cls.start(
            "relay", "relay", "--from", f"{cls.base}/shop", "--to", f"billing=mailbox+{cls.base}/billing",
            "--to", f"search=mailbox+postgresql://nobody@127.0.0.1:{free_port()}/search", "--lease-ttl-ms", "2000",
            "--admin", f"127.0.0.1:{cls.admin}", "--admin-token-file", str(cls.token))

    @classmethod
    def start_dashboard(cls):
        process = cls.start("dashboard", "dashboard", "--from", f"{cls.base}/shop", "--consumer-db",
                            f"{cls.base}/billing", "--admin-token-file", str(cls.token), "--listen", "127.0.0.1:0",
                            "--connect-timeout-s", "5")
        cls.addClassCleanup(cls.end, process)
        cls.dashboard = process
        out = cls.folder / "dashboard.out"
        wait_for("the dashboard listens", lambda: "/\n" in out.read_text())
        return re.search(r"http://\S+", out.read_text()).group()

    # Events as they come, as long as the test goes on.
    @classmethod
    def begin_writing(cls):
        writer = subprocess.Popen(["psql", "-qX", f"{cls.base}/shop"], stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        writer.stdin.write("INSERT INTO outbox_events (topic, key, event_type, payload, aggregate_type, aggregate_id) "
                           "SELECT 'orders', 'live-' || i, 'OrderPlaced', '{}', 'Order', 'live-' || i FROM "
                           "generate_series(1, 15 + (random() * 20)::int) i \\watch 0.3\n")
        writer.stdin.close()
        cls.addClassCleanup(lambda: (writer.kill(), writer.wait()))

    @classmethod
    def fill(cls):
        cls.psql("shop", f"""
            INSERT INTO outbox_dead_letters (source, route, position, id, key, aggregate_type, aggregate_id,
                event_type, payload, headers, topic, occurred_at, attempts, error_code, error, died_at)
            SELECT 'public.outbox_events', 'billing', i, '00000000-0000-7000-8000-' || lpad(i::text, 12, '0'),
                'o-' || (i % 5000), 'Order', 'o-' || (i % 5000), 'OrderPaid',
                convert_to('{{"order_id":"o-' || i || '","amount":"99.90"}}', 'UTF8'), '{{"trace":"1"}}', 'orders',
                now() - interval '3 hours', 5, CASE i % 1000 WHEN 0 THEN 'OB_TOPIC_UNKNOWN' WHEN 9 THEN 'OB_TOPIC_INVALID' ELSE 'OB_RECORD_REFUSED' END,
                'the destination refused the record: amount is a text', now() - interval '2 hours' + i * interval '50 ms'
            FROM generate_series(1, {LETTERS}) i;
            UPDATE outbox_dead_letters SET error = $x${HOSTILE}$x$, key = $x${HOSTILE}$x$, event_type = $x${HOSTILE}$x$,
                payload = convert_to(repeat($x${HOSTILE}$x$, 20000), 'UTF8') WHERE position = 1;
            UPDATE outbox_dead_letters SET payload = '\\x61ff00c3e2808e' WHERE position = 2;
            UPDATE outbox_dead_letters SET key = repeat('k', 900), error = repeat('e', 20000),
                headers = chr(8238) || 'backwards' WHERE position = 3;
            INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, next_attempt_at,
                error_code, last_error) VALUES
                ('public.outbox_events', 'billing', '00000000-0000-7000-8000-00000000f001', 900000001, $x${HOSTILE}$x$, 3,
                 now() + interval '40 s', 'OB_RECORD_REFUSED', $x${HOSTILE}$x$);
            INSERT INTO outbox_audit (os_user, source, action, detail, events, event_ids)
                VALUES ('bob', 'public.outbox_events', 'dead retry', $x${HOSTILE}$x$, 2, '{{}}');
            INSERT INTO outbox_paused_tenants (source, tenant_id, os_user, reason)
                VALUES ('public.outbox_events', 'globex', 'bob', $x${HOSTILE}$x$);
            {SAGAS};
            {REPLAYS}""")

    # Time of its own, which a starved machine does not lengthen.
    @staticmethod
    def processor_s(process):
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def setUp(self):
        self.errors = []

    def open(self, view="", width=1280, height=900, scheme="light", url=None):
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append("a dialog: " + dialog.message), dialog.dismiss()))
        page.goto((url or self.page_url) + (f"#/{view}" if view else ""))
        page.wait_for_selector("body[data-ready]")
        return page

    def view(self, page, name):
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=2, name=name, exact=True)).to_be_visible()
        expect(page.get_by_text("reading …")).to_have_count(0)

    def assert_sound(self, page, what):
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
        self.assertEqual(found.violations_count, 0, f"{what}: {found.generate_report()}")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.assertLessEqual(wide, 0, f"{what} is wider than the screen")
        self.assertFalse(page.evaluate("'hacked' in window"), what)
        self.assertEqual(self.errors, [], what)

    # Those of the guide, or with OUTBOX_SCREENSHOTS_ALL all that there are.
    def screenshot(self, page, name):
        folder = os.environ.get("OUTBOX_SCREENSHOTS")
        if folder and (name in KEPT or "OUTBOX_SCREENSHOTS_ALL" in os.environ):
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=f"{folder}/{KEPT.get(name, name)}.png", animations="disabled")

    def test_every_view_is_sound_wherever_it_is_looked_at(self):
        for width, height, scheme in ((1280, 900, "light"), (1100, 700, "dark"), (360, 780, "light"), (360, 780, "dark")):
            page = self.open(width=width, height=height, scheme=scheme)
            shot = f"{'phone' if width < 500 else 'desktop'}-{scheme}"
            for name in ("Flow", "Held up", "Dead letters", "Sagas", "Consumers", "Replays", "Audit", "Explain"):
                with self.subTest(view=name, width=width, scheme=scheme):
                    self.view(page, name)
                    self.assert_sound(page, name)
                    self.screenshot(page, f"{shot}-{name.lower().replace(' ', '-')}")
            self.view(page, "Dead letters")
            page.get_by_role("button", name="Show 00000000-0000-7000-8000-000000000004").click()
            expect(page.get_by_role("heading", name="Dead letter", exact=True)).to_be_visible()
            self.assert_sound(page, "a letter")
            self.screenshot(page, f"{shot}-letter")
            page.get_by_role("dialog").get_by_role("button", name="Discard…").click()
            expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_visible()
            self.assert_sound(page, "a question")
            self.screenshot(page, f"{shot}-question")

    def test_flow_tells_what_is_wrong_first(self):
        page = self.open()
        expect(page.get_by_role("link", name=re.compile("The destination of route search is down"))).to_be_visible()
        expect(page.get_by_role("link", name=re.compile("[0-9,]+ events were given up on"))).to_be_visible()
        routes = page.get_by_role("table", name="Routes")
        expect(routes.get_by_role("row", name=re.compile("search.*destination is down"))).to_be_visible()
        expect(routes.get_by_role("row", name=re.compile("billing.*sending"))).to_be_visible()
        # Figures change while one looks.
        sent = page.locator(".lane", has_text="billing").get_by_text(re.compile("[0-9,]+ sent"))
        before = sent.inner_text()
        expect(sent).not_to_have_text(before)
        expect(page.get_by_role("img", name=re.compile("Sent per second, now: .*billing [1-9]"))).to_be_visible()
        # The events of route search stay: the oldest of them is older at each look.
        expect(page.get_by_role("img", name=re.compile("Age of the oldest event that waits, now: oldest [1-9]"))).to_be_visible()

    def test_the_relays_own_page_knows_the_latency(self):
        page = self.open(url=f"http://localhost:{self.admin}/", width=1000, height=1130)
        expect(page.get_by_role("img", name=re.compile(r"Latency.*half within [0-9.]+ m?s.*99% within [0-9.]+"))).to_be_visible()
        page.wait_for_timeout(20_000 if os.environ.get("OUTBOX_SCREENSHOTS") else 0)  # for the picture's lines
        self.assert_sound(page, "the relay's page")
        self.screenshot(page, "relay-light")

    def test_a_page_of_dead_letters_takes_under_a_second(self):
        page = self.open("letters")
        expect(page.get_by_text(re.compile("shown are 1 to 50"))).to_be_visible()
        took = []
        before = self.processor_s(self.dashboard)
        for first in range(51, 51 + 50 * 5, 50):
            begin = time.monotonic()
            page.get_by_role("button", name="Next").click()
            page.get_by_text(re.compile(f"shown are {first} to")).wait_for()
            took.append(time.monotonic() - begin)
        print("pages of", LETTERS, "dead letters, seconds:", [round(one, 3) for one in took], file=sys.stderr)
        self.assertLess((self.processor_s(self.dashboard) - before) / len(took), PAGE_S)
        page.get_by_role("button", name="Previous").click()
        expect(page.get_by_text(re.compile("shown are 201 to 250"))).to_be_visible()
        page.get_by_role("button", name="First").click()
        expect(page.get_by_text(re.compile("shown are 1 to 50"))).to_be_visible()

    def test_filters_narrow_and_say_where_nothing_matches(self):
        page = self.open("letters")
        page.get_by_label("Error").fill("OB_TOPIC_INVALID")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_text(re.compile("100 dead letters, error OB_TOPIC_INVALID"))).to_be_visible()
        page.get_by_label("Key", exact=True).fill("nobody's")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_text(re.compile("No dead letter matches: error OB_TOPIC_INVALID, key nobody's"))).to_be_visible()
        expect(page.get_by_role("button", name="Retry these…")).to_have_count(0)
        page.get_by_role("link", name="Clear").click()
        expect(page.get_by_text(re.compile("shown are 1 to 50"))).to_be_visible()
        self.assertEqual(page.get_by_label("Error").input_value(), "")

    def test_hostile_events_are_text(self):
        page = self.open("letters")
        for number, shown in ((1, "window.hacked=1"), (2, "not UTF-8"), (3, "backwards")):
            page.get_by_role("button", name=f"Show 00000000-0000-7000-8000-00000000000{number}").click()
            expect(page.get_by_role("dialog").get_by_text(shown).first).to_be_visible()
            self.assert_sound(page, f"hostile letter {number}")
            page.keyboard.press("Escape")
        page.get_by_role("button", name="Show 00000000-0000-7000-8000-000000000001").click()
        expect(page.get_by_text(re.compile("the first 65,536 are shown"))).to_be_visible()
        self.assertEqual(page.locator("main img, dialog img, main script, dialog script").count(), 0)
        page.get_by_role("link", name="Its life").click()
        expect(page.get_by_text("What happened")).to_be_visible()
        self.assert_sound(page, "a hostile life")

    def test_keys_suffice(self):
        page = self.open()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent").startswith("Dead letters"):
                break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        self.assertEqual(outline, "solid", "the focus is seen")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=2, name="Dead letters")).to_be_focused()
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.do") == "letter":
                break
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        self.assertEqual(page.evaluate("document.activeElement.dataset.do"), "letter")
        # New figures leave the focus where it is.
        self.view(page, "Flow")
        routes = page.get_by_role("region", name="Routes")
        routes.focus()
        shown = page.locator(".lane", has_text="billing").get_by_text(re.compile("[0-9,]+ sent"))
        before = shown.inner_text()
        expect(shown).not_to_have_text(before)
        expect(routes).to_be_focused()

    def test_changes_need_token_name_reason_and_the_number_of_what_is_meant(self):
        page = self.open("letters?error_code=OB_TOPIC_UNKNOWN")
        page.get_by_role("button", name="Retry these…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Retry 100 dead letters")).to_be_visible()
        expect(dialog.get_by_text("Would ask the relay to send 100 dead letters again")).to_be_visible()
        send = dialog.get_by_role("button", name="Retry 100 dead letters")

        def fill(token, typed="100"):
            if dialog.get_by_label("Token").count():
                dialog.get_by_label("Token").fill(token)
            dialog.get_by_label("Your name").fill("Ann")
            dialog.get_by_label("Reason").fill("topic was made")
            dialog.get_by_label("Type 100").fill(typed)
            send.click()

        asked = "SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at IS NOT NULL"
        fill(TOKEN, "10")  # the browser refuses it
        expect(dialog).to_be_visible()
        fill("wrong")
        expect(dialog.get_by_role("alert")).to_contain_text("the token is not that of the admin token file")
        self.assertEqual(self.psql("shop", asked), "0")
        # What died meanwhile was not meant.
        self.psql("shop", "UPDATE outbox_dead_letters SET error_code = 'OB_TOPIC_UNKNOWN' WHERE position = 7")
        fill(TOKEN)
        expect(dialog.get_by_role("alert")).to_contain_text("101 dead letters match now")
        self.assertEqual(self.psql("shop", asked), "0")
        page.keyboard.press("Escape")
        self.errors.clear()  # the refusals above
        self.psql("shop", "UPDATE outbox_dead_letters SET error_code = 'OB_RECORD_REFUSED' WHERE position = 7")
        page.get_by_role("button", name="Retry these…").click()
        expect(dialog.get_by_label("Token")).to_have_count(0)
        fill("")
        expect(page.get_by_text("Asked the relay to retry 100 dead letters.")).to_be_visible()
        wait_for("the relay has delivered them again", lambda: self.psql(
            "shop", "SELECT count(*) FROM outbox_dead_letters WHERE error_code = 'OB_TOPIC_UNKNOWN'") == "0")
        self.view(page, "Audit")
        line = page.get_by_role("row", name=re.compile(r"Ann \(dashboard\)")).first
        expect(line).to_contain_text("dead retry")
        expect(line).to_contain_text("reason: topic was made")
        self.assert_sound(page, "the audit")

    def test_one_letter_is_discarded(self):
        page = self.open("letters?id=00000000-0000-7000-8000-000000000005")
        page.get_by_role("button", name="Show 00000000-0000-7000-8000-000000000005").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Discard…").click()
        dialog.get_by_label("Token").fill(TOKEN)
        dialog.get_by_label("Your name").fill("Ann")
        dialog.get_by_label("Reason").fill("made by a test")
        dialog.get_by_role("button", name="Discard 1 dead letter").click()
        expect(page.get_by_text("Discarded 1 dead letter.")).to_be_visible()
        expect(page.get_by_text(re.compile("No dead letter matches"))).to_be_visible()
        self.assertEqual(self.psql("shop", "SELECT count(*) FROM outbox_dead_letters WHERE position = 5"), "0")

    def test_sagas_show_their_steps(self):
        page = self.open("sagas?state=stuck")
        page.get_by_role("button", name="Show 00000000-0000-7000-8000-0000000000aa").click()
        steps = page.get_by_role("dialog").get_by_role("table", name="Steps")
        expect(steps.get_by_role("row", name=re.compile("charge"))).to_be_visible()
        expect(page.get_by_role("dialog").get_by_text("no answer to charge").first).to_be_visible()
        self.assert_sound(page, "a saga")

    def test_paused_tenants_and_the_longest_backlogs_are_shown(self):
        page = self.open("held")
        tenants = page.get_by_role("table", name="Tenants")
        row = tenants.get_by_role("row", name=re.compile("globex"))
        expect(row).to_contain_text("▲ paused")
        expect(row).to_contain_text("user bob")
        expect(tenants.get_by_role("row", name=re.compile("default"))).to_contain_text("○ not paused")
        self.assert_sound(page, "the tenants")

    def test_replays_show_their_pace_while_they_run(self):
        replay = self.start("replay", "replay", "--from", f"{self.base}/shop", "--to",
                            f"billing=mailbox+{self.base}/billing", "--dead-letters", "--rate", "20/s",
                            "--event-type", "OrderPaid", "--yes", "--reason", "a screen is looked at")
        self.addCleanup(self.end, replay)
        page = self.open("replays")
        row = page.get_by_role("row", name=re.compile("a screen is looked at"))
        expect(row).to_contain_text("✓ running")
        expect(row).to_contain_text("asked for 20/s")
        expect(row).to_contain_text(re.compile("about .* left"))
        expect(row).to_contain_text("dead letters of route billing, event type OrderPaid")
        sent = row.get_by_text(re.compile("[0-9,]+ of [0-9,]+"))
        before = sent.inner_text()
        expect(sent).not_to_have_text(before)
        for run, shown in (("b1", "▲ stopped"), ("b2", "✕ failed"), ("b3", "○ done"), ("b4", "○ cancelled")):
            expect(page.get_by_role("row", name=re.compile(f"8000-0000000000{run}"))).to_contain_text(shown)
        self.assert_sound(page, "the replays")
        self.screenshot(page, "replays")
        replay.terminate()
        replay.wait(PATIENCE_S)
        expect(row).to_contain_text("▲ stopped")

    def test_a_relay_that_is_killed_is_told_of(self):
        page = self.open()
        self.relay.send_signal(signal.SIGKILL)
        self.relay.wait(PATIENCE_S)
        expect(page.get_by_role("link", name=re.compile("No relay runs"))).to_be_visible()
        expect(page.get_by_role("table", name="Routes").get_by_role("row", name=re.compile("no relay runs")).first).to_be_visible()
        self.assert_sound(page, "no relay")
        self.start_relay()
        expect(page.get_by_role("link", name=re.compile("No relay runs"))).to_have_count(0)

    def test_z_a_database_that_goes_away_leaves_old_figures_and_comes_back(self):
        page = self.open()
        expect(page.get_by_text("✓ live")).to_be_visible()
        sent = page.locator(".lane", has_text="billing").get_by_text(re.compile("[0-9,]+ sent"))
        self.server("stop")
        banner = page.get_by_role("alert").filter(has_text="What is shown is old")
        expect(banner).to_be_visible()
        expect(banner).to_contain_text("The database cannot be asked")
        expect(page.get_by_text("old figures")).to_be_visible()
        expect(sent).to_be_visible()
        self.errors.clear()  # the answers with 503
        found = Axe().run(page)
        self.assertEqual(found.violations_count, 0, found.generate_report())
        self.screenshot(page, "away-light")
        page.get_by_role("navigation").get_by_role("link", name="Audit").click()
        expect(page.get_by_text("This cannot be shown.")).to_be_visible()
        page.get_by_role("navigation").get_by_role("link", name="Flow").click()
        self.server("start")
        expect(banner).to_have_count(0)
        expect(page.get_by_text("✓ live")).to_be_visible()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
