"""A receiver of webhooks without our own code: `standardwebhooks` checks v1, `cryptography` v1a.

usage: receiver.py HOST PORT LOG [--tls FILE] [KEY...]

Serves until it is ended; says "ready" on stdout. Each request becomes a line of LOG, a JSON object: method, path, body
(base64), headers (names in lower case, a list of values each), and for each KEY (whsec_... or whpk_...) whether one of the signatures
is by it. What the path ends in decides the answer:

    /status/410            that status                 /status/503/after/7    with Retry-After: 7
    /redirect/URL          302 there (percent-encoded) /break                 200, and the connection breaks in the body
    /early/103             that status before, and then as the rest of the path says
    /early/103/end         that status, and the connection ends
    /hang                  none until the end          /endless               200 and a body without an end
    /hang/behind/3         the same behind the first 3 of that path
    else                   200
"""

import base64
import collections
import http.server
import json
import ssl
import sys
import threading
import urllib.parse

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def signed_with(key, body, headers):
    if key.startswith("whsec_"):
        try:
            Webhook(key).verify(body, headers, json_parse=False)
            return True
        except WebhookVerificationError:
            return False
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("whpk_"), validate=True))
    message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    for signature in headers["webhook-signature"].split(" "):
        version, _, value = signature.partition(",")
        if version != "v1a":
            continue
        try:
            public.verify(base64.b64decode(value, validate=True), message)
            return True
        except InvalidSignature:
            continue
    return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        lists = {}
        for name, value in self.headers.items():
            lists.setdefault(name.lower(), []).append(value)
        line = {"method": self.command, "path": self.path, "body": base64.b64encode(body).decode(), "headers": lists,
                "signed_with": [signed_with(key, body, headers) for key in self.server.keys]}
        with self.server.lock, open(self.server.log, "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
            self.server.came[self.path] += 1
            self.number = self.server.came[self.path]
        self.answer()

    do_GET = do_POST

    def answer(self):
        words = self.path.split("/")
        if "early" in words:
            self.wfile.write(f"HTTP/1.1 {words[words.index('early') + 1]} Early\r\nRetry-After: 5\r\n\r\n".encode())
            self.wfile.flush()
        if "end" in words:
            self.close_connection = True
            return
        if "hang" in words and self.number > (int(words[words.index("behind") + 1]) if "behind" in words else 0):
            threading.Event().wait()
        status, headers, body = 200, {}, b"taken\n"
        if "status" in words:
            status = int(words[words.index("status") + 1])
        if "after" in words:
            headers["Retry-After"] = urllib.parse.unquote(words[words.index("after") + 1])
        if "redirect" in words:
            status, headers["Location"] = 302, urllib.parse.unquote(words[words.index("redirect") + 1])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        endless, breaks = "endless" in words, "break" in words
        if status == 204:
            body = b""
        else:
            self.send_header("Content-Length", str(1 << 40 if endless or breaks else len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
            while endless:
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass
        if endless or breaks:
            self.close_connection = True

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        print("error:", sys.exc_info()[1], file=sys.stderr)


def main():
    words = sys.argv[1:]
    host, port, log = words[:3]
    del words[:3]
    server = Server((host, int(port)), Handler)
    server.lock = threading.Lock()
    server.log = log
    server.came = collections.Counter()
    if words[:1] == ["--tls"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(words[1])
        # The handshake is the connection's own thread's, so that one that hangs holds nobody up.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        del words[:2]
    server.keys = words
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
