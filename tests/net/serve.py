"""How the tests' HTTP servers serve: a thread for each connection, TLS where a file of certificate and key is named."""

import http.server
import ssl
import sys


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        pass


def serve(handler):
    """Prints the port and serves until the process ends."""
    server = Server(("127.0.0.1", 0), handler)
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()
