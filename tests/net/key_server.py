"""Hands out access keys of AWS as STS, containers and machines of EC2 do, to the tests: key_server.py [certificate and key].
Prints its port.

A key is ROLE<when it expires, in ms since 1970>x<its number>; its secret is s3cret-of-role and its session
token t0ken-of- and the key. GET /set?NAME=VALUE changes what it does, GET /seen tells what it was asked:

    lifetime        of keys, in seconds (3600); 0: none is said
    mode            ok, refuse, hang, nonsense, huge, expired, foreign (an hour ahead), noKey, noRole, off
    authorization   that /container wants
    key, secret     to be handed out instead

PUT /payloads/NAME is an object store that takes it from the access key RICH, and tells others that they lack the right.
"""

import datetime
import email.utils
import http.server
import json
import threading
from urllib.parse import parse_qsl, urlsplit

from serve import serve

settings = {}
seen = []
forever = threading.Event()
HOUR = datetime.timedelta(hours=1)
METADATA_TOKEN = "t0ken-of-machine"
ROLES = "/latest/meta-data/iam/security-credentials/"


def setting(name, default=""):
    return settings.get(name, default)


def now():
    return datetime.datetime.now(datetime.timezone.utc) + (HOUR if setting("mode") == "foreign" else 0 * HOUR)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, text, media_type="application/json"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp=None):
        return email.utils.format_datetime(now(), usegmt=True)

    def key(self):
        life = float(setting("lifetime", "3600"))
        expires = now() + datetime.timedelta(seconds=-1 if setting("mode") == "expired" else life)
        name = setting("key") or f"ROLE{int(expires.timestamp() * 1000)}x{len(seen)}"
        made = {"AccessKeyId": name, "SecretAccessKey": setting("secret", "s3cret-of-role"),
                "SessionToken": "t0ken-of-" + name}
        if life:
            made["Expiration"] = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
        if setting("mode") == "noKey":
            del made["SecretAccessKey"]
        return made

    def document(self):
        made = self.key()
        made["Token"] = made.pop("SessionToken")
        return json.dumps({"Code": "Success", **made})

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        url = urlsplit(self.path)
        if url.path == "/set":
            settings.update(parse_qsl(url.query, keep_blank_values=True))
            return self.answer(200, "")
        if url.path == "/reset":
            settings.clear()
            seen.clear()
            return self.answer(200, "")
        if url.path == "/seen":
            return self.answer(200, json.dumps(seen))
        if url.path.startswith("/payloads/"):
            return self.store()
        seen.append({"method": self.command, "path": self.path, "body": dict(parse_qsl(body)),
                     "headers": {name.lower(): value for name, value in self.headers.items()}})
        mode = setting("mode")
        if mode == "hang":
            forever.wait()
        if mode == "nonsense":
            return self.answer(200, "<html>\x1b[31mit works</html>")
        if mode == "huge":
            return self.answer(200, "x" * (1 << 20))
        if url.path.startswith("/latest/"):
            return self.machine(url.path, mode)
        if url.path.startswith("/container"):
            return self.container(mode)
        return self.sts(dict(parse_qsl(body)), mode)

    do_GET = do_POST = do_PUT = serve

    def store(self):
        if "Credential=RICH/" not in self.headers.get("Authorization", ""):
            return self.answer(403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>", "text/xml")
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def sts(self, form, mode):
        if mode == "refuse":
            said = f"The token {form['WebIdentityToken']} is not for us"
            return self.answer(400, "<ErrorResponse><Error><Code>InvalidIdentityToken</Code>"
                                    f"<Message>{said}</Message></Error></ErrorResponse>", "text/xml")
        parts = "".join(f"<{name}>{value}</{name}>" for name, value in self.key().items())
        self.answer(200, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                         f"{parts}</Credentials></AssumeRoleWithWebIdentityResult>"
                         "</AssumeRoleWithWebIdentityResponse>", "text/xml")

    def container(self, mode):
        wanted = setting("authorization")
        if mode == "refuse" or self.headers.get("Authorization", "") != wanted:
            said = f"no role for {self.headers.get('Authorization')}"
            return self.answer(401, json.dumps({"code": "AccessDenied", "message": said}))
        self.answer(200, self.document())

    def machine(self, path, mode):
        if mode == "off":
            return self.answer(403, "")
        if path == "/latest/api/token":
            if self.command != "PUT" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
                return self.answer(400, "")
            return self.answer(200, METADATA_TOKEN, "text/plain")
        if self.headers.get("X-aws-ec2-metadata-token") != METADATA_TOKEN:
            return self.answer(401, "")
        if path == ROLES:
            return self.answer(404, "") if mode == "noRole" else self.answer(200, "relay-role\n", "text/plain")
        if mode == "refuse":
            return self.answer(200, json.dumps({"Code": "AssumeRoleUnauthorizedAccess", "Message": "not trusted"}))
        self.answer(200 if path == ROLES + "relay-role" else 404, self.document())

    def log_message(self, *arguments):
        pass


serve(Handler)
