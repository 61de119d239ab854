"""Receives OTLP over HTTP and reads it with OpenTelemetry's own definitions.

usage: receiver.py PORT FOLDER [--login VALUE]

FOLDER/spans gets a line of JSON for each span. --login: what the header Authorization has to be; else it answers 401.
FOLDER/mode, where it is, says for each request what is done: take, status N, refuse N (it takes all but N of them), or hang.
"""

import argparse
import base64
import http.server
import json
import pathlib
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = {"traceId", "spanId", "parentSpanId"}


def with_bytes(value):
    """OTLP writes ids in hexadecimal, where protobuf's JSON has base64."""
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in IDS else with_bytes(v) for k, v in value.items()}


def text_of(attributes):
    return {attribute.key: attribute.value.string_value for attribute in attributes}


def lines_of(body):
    request = json_format.ParseDict(with_bytes(json.loads(body)), ExportTraceServiceRequest())
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield json.dumps(
                    {
                        "resource": text_of(resource_spans.resource.attributes),
                        "trace": span.trace_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "span": span.span_id.hex(),
                        "name": span.name,
                        "kind": span.kind,
                        "us": (span.end_time_unix_nano - span.start_time_unix_nano) // 1000,
                        "start_us": span.start_time_unix_nano // 1000,
                        "status": span.status.code,
                        "error": span.status.message,
                        "attributes": text_of(span.attributes),
                    }
                )


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        mode = self.server.folder / "mode"
        word, _, rest = (mode.read_text() if mode.exists() else "take").partition(" ")
        if self.path != "/v1/traces" or self.headers.get("Content-Type") != "application/json":
            return self.answer(404, b"no")
        if self.server.login and self.headers.get("Authorization") != self.server.login:
            return self.answer(401, b'{"message": "who are you?"}')
        if word == "hang":
            threading.Event().wait()
        if word == "status":
            return self.answer(int(rest), b'{"message": "told to"}')
        lines = list(lines_of(body))
        with self.server.lock, open(self.server.folder / "spans", "a", encoding="utf-8") as spans:
            for line in lines[int(rest) if word == "refuse" else 0 :]:
                spans.write(line + "\n")
        partial = {"partialSuccess": {"rejectedSpans": rest, "errorMessage": "too old"}} if word == "refuse" else {}
        self.answer(200, json.dumps(partial).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--login")
given = parser.parse_args()
server = Server(("127.0.0.1", given.port), Handler)
server.folder, server.login, server.lock = given.folder, given.login, threading.Lock()
print("ready", flush=True)
server.serve_forever()
