"""Stands in front of a schema registry and hands requests on, or does what may stand there, too.

usage: front.py PORT TO_PORT FOLDER [--login VALUE] [--tls PEM]

FOLDER/requests gets a line for each request: its path. --login: what the header Authorization has to be; else it answers
401. FOLDER/mode, where it is, says for each request what is done: pass, html, redirect URL, status N, page N, text BODY, hang, or
close; or "for TEXT" and one of them, which is then done to paths that hold TEXT alone.
"""

import argparse
import http.client
import http.server
import pathlib
import ssl
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        folder = self.server.folder
        with self.server.lock, open(folder / "requests", "a", encoding="utf-8") as log:
            log.write(self.path + "\n")
        mode = folder / "mode"
        word, _, rest = (mode.read_text() if mode.exists() else "pass").partition(" ")
        if word == "for":
            part, _, rest = rest.partition(" ")
            word, _, rest = rest.partition(" ") if part in self.path else ("pass", "", "")
        if self.server.login and self.headers.get("Authorization") != self.server.login:
            return self.answer(401, b'{"error_code":401,"message":"Unauthorized"}')
        if word == "html":
            return self.answer(200, b"<!DOCTYPE html><html><body>Please log in</body></html>")
        if word == "redirect":
            return self.answer(302, b"", Location=rest)
        if word == "status":
            return self.answer(int(rest), b'{"error_code":%d,"message":"told to"}' % int(rest))
        if word == "page":
            return self.answer(int(rest), b"<html><body>No</body></html>")
        if word == "text":
            return self.answer(200, rest.encode())
        if word == "hang":
            threading.Event().wait()
        if word == "close":
            self.close_connection = True
            return self.connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.to_port, timeout=60)
        try:
            connection.request("GET", self.path, headers={"Accept": self.headers.get("Accept", "*/*")})
            answer = connection.getresponse()
            self.answer(answer.status, answer.read())
        except OSError:
            self.answer(502, b"<html>Bad Gateway</html>")

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("to_port", type=int)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--login")
parser.add_argument("--tls")
given = parser.parse_args()
server = Server(("127.0.0.1", given.port), Handler)
server.to_port, server.folder, server.login, server.lock = given.to_port, given.folder, given.login, threading.Lock()
if given.tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(given.tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
