"""A small HTTP server for the tests: http_server.py [certificate and key]. Prints its port."""

import http.server
import json
import threading

from serve import serve

barrier = threading.Condition()
waiting = 0
connections = 0
hanging = 0
forever = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        global connections
        super().setup()
        with barrier:
            connections += 1
            self.number = connections

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers(b"" if self.command == "HEAD" else body)

    def end_headers(self, body=b""):
        """In one piece with the body: whoever waits for no rest of an answer has it all."""
        self._headers_buffer.append(b"\r\n" + body)
        self.flush_headers()

    def serve(self):
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        what, _, argument = self.path.partition("?")[0].partition("=")
        getattr(self, "do_" + what.strip("/"), self.missing)(argument, body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = serve

    def missing(self, argument, body):
        self.answer(404, b"no such page")

    def do_echo(self, argument, body):
        seen = {
            "method": self.command,
            "path": self.path,
            "headers": [[name, value] for name, value in self.headers.items()],
            "body": body.decode("latin-1"),
            "connection": self.number,
        }
        self.answer(200, json.dumps(seen).encode(), [("X-Seen", "yes"), ("X-Empty", "")])

    def do_hang(self, argument, body):
        global hanging
        with barrier:
            hanging += 1
        forever.wait()

    def do_half(self, argument, body):
        """Never ends the headers, or the body."""
        self.send_response(200)
        self.send_header("Content-Length", "100")
        if argument == "headers":
            self.flush_headers()
        else:
            self.end_headers()
            self.wfile.write(b"half")
        forever.wait()

    def do_hanging(self, argument, body):
        self.answer(200, str(hanging).encode())

    def do_redirect(self, argument, body):
        self.answer(302, b"", [("Location", "/echo")])

    def do_endless(self, argument, body):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            self.close_connection = True

    def do_headers(self, argument, body):
        self.answer(200, b"", [("X-" + str(i), "x" * 1000) for i in range(90)])

    def do_drop(self, argument, body):
        self.close_connection = True

    def do_once(self, argument, body):
        """Answers, and closes the connection without saying so."""
        self.answer(200, b"once")
        self.close_connection = True

    def do_nonsense(self, argument, body):
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def do_together(self, argument, body):
        """Answers once so many requests are here at once."""
        global waiting
        with barrier:
            waiting += 1
            barrier.notify_all()
            barrier.wait_for(lambda: waiting >= int(argument))
        self.answer(200, b"together")

    def log_message(self, *arguments):
        pass


serve(Handler)
