"""Asks a real Prometheus, which scrapes a real relay, each query of the dashboard, those of its variables, too: none
may be without an answer. Names of metrics that have changed would show as empty panels, which look like a quiet night.

usage: dashboard.py ROOT OUTBOX SERVICE_PAGE
"""
import http.server
import json
import os
import pathlib
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

DEADLINE_S = 90
VARIABLES = {"$source": ".*", "$route": ".*", "$__rate_interval": "10s"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def queries(dashboard):
    """(panel, query) of the dashboard at hand."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            yield panel["title"], query


def variables(dashboard):
    """(variable, series, label) of the variables whose values Prometheus has."""
    for variable in json.loads(dashboard.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = variable["query"]["query"]
        parts = re.fullmatch(r"label_values\((.+), (\w+)\)", asked)
        if not parts:
            sys.exit(f"${variable['name']} asks what is not asked here: {asked}")
        yield f"${variable['name']}", parts[1].replace("$source", ".*"), parts[2]


def serve(page):
    """Serves the text on a port of its own; returns that."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def start_relay(outbox, place, port):
    """A relay with a route that goes on, one whose destination is away, and one to webhooks."""
    url = f"sqlite://{place}/shop.db"
    key = place / "webhook.key"
    key.write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    key.chmod(0o600)
    subprocess.run([outbox, "migrate", "--db", url], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([outbox, "webhook", "add", f"http://127.0.0.1:{free_port()}/", "--allow", "127.0.0.1",
                    "--allow-http", "--key-file", key, "--db", url], check=True, stdout=subprocess.DEVNULL)
    with sqlite3.connect(place / "shop.db") as shop:
        shop.executemany("INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) "
                         "VALUES ('Order', ?, 'order.created', '{}')", [(f"o-{i}",) for i in range(100)])
    return subprocess.Popen(
        [outbox, "relay", "--from", url, "--admin", f"127.0.0.1:{port}", "--to", "null=null:",
         "--to", f"away=kafka://127.0.0.1:{free_port()}",
         "--to", f"hooks=webhook+sqlite://{place}/shop.db?key_file={key}&allow=127.0.0.1&allow_http=true"],
        stdout=subprocess.DEVNULL, stderr=open(place / "relay.log", "w"))


def start_prometheus(place, port, targets):
    config = place / "prometheus.json"  # JSON is YAML
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "outbox", "static_configs": [
            {"targets": [f"127.0.0.1:{target}" for target in targets]}]}]}))
    return subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
        stdout=subprocess.DEVNULL, stderr=open(place / "prometheus.log", "w"))


def ask(port, path, **parameters):
    """What Prometheus answers; None while it does not."""
    asked = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{asked}", timeout=10) as page:
            return json.load(page)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it listens before it is ready
            return None
        sys.exit(f"Prometheus refuses {asked}: {error.read().decode()}")
    except OSError:
        return None


def answer(port, query):
    """The series that Prometheus has for the query."""
    data = ask(port, "query", query=query)
    return data and data["result"]


def values(port, series, label):
    """What a variable offers, as Grafana asks for it."""
    return ask(port, f"label/{label}/values", **{"match[]": series})


def main():
    root, outbox, service_page = sys.argv[1:]
    dashboard = pathlib.Path(root) / "packaging/grafana/outbox.json"
    asked = [(f"panel '{panel}'", query, lambda port, query=query: answer(port, query))
             for panel, query in queries(dashboard)]
    asked += [(variable, f"{label} of {series}", lambda port, series=series, label=label: values(port, series, label))
              for variable, series, label in variables(dashboard)]
    if len({who for who, _, _ in asked}) < 3:
        sys.exit("the dashboard asks nothing")
    with tempfile.TemporaryDirectory(prefix="outbox-dashboard-") as folder:
        place = pathlib.Path(folder)
        page = subprocess.run([service_page], check=True, stdout=subprocess.PIPE, text=True).stdout
        relay_port, port = free_port(), free_port()
        started = [start_relay(outbox, place, relay_port),
                   start_prometheus(place, port, [relay_port, serve(page)])]
        try:
            deadline = time.monotonic() + DEADLINE_S
            left = asked
            while left and time.monotonic() < deadline:
                time.sleep(0.5)
                left = [one for one in left if not one[2](port)]
            for who, query, _ in left:
                print(f"{who}: nothing answers {query}")
            if left:
                print((place / "relay.log").read_text()[-3000:], (place / "prometheus.log").read_text()[-3000:])
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(60)
        print(f"{len(asked) - len(left)} of {len(asked)} queries have an answer")
        return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
