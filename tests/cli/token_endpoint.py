"""A token endpoint as an identity provider has it: prints its port, gives every client that knows
the secret a token without a signature, which a broker takes that is told to.
"""

import base64
import http.server
import json
import time

SECRET = "Basic " + base64.b64encode(b"relay:s3cret").decode()


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["Authorization"] != SECRET:
            self.send_error(401)
            return
        now = int(time.time())
        claims = {"sub": "relay", "iat": now, "exp": now + 3600, "scope": "kafka"}
        token = part({"alg": "none", "typ": "JWT"}) + "." + part(claims) + "."
        body = json.dumps({"access_token": token, "token_type": "Bearer",
                           "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.HTTPServer(("127.0.0.1", 0), Endpoint)
print(server.server_port, flush=True)
server.serve_forever()
