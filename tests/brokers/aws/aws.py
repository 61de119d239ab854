"""Answers as Amazon's own SQS and SNS do, where the servers of the tests do not: it looks at
signatures, by botocore, and refuses for the reasons that the services' references name.

usage: aws.py [PEM]     with TLS where there is a certificate and its key. Prints its port.

The key is AKID with the secret s3cret-of-aws; AKTEMP wants the session token s3cret-token, too, and
AKPOOR has no rights, AKPAGE those of the service's page in docs/brokers. One of tests/net/key_server.py is good until it expires. What it
does depends on the name of the queue or topic: "throttled" and "denied" are, "strange" is refused by a word that nobody knows, "partly" does not take entries whose
body says why ("refuse InvalidMessageContents", "fault InternalError"), "toolong" refuses a batch with
a body "long", and all others take everything. "skewed" in the region: a clock an hour ahead; "empty": its lists are HTML, as a proxy's.
"""

import datetime
import email.utils
import fnmatch
import http.server
import json
import pathlib
import re
import sys
import time
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "net"))
from serve import serve  # noqa: E402

KEYS = {"AKID": ("s3cret-of-aws", None), "AKPOOR": ("s3cret-of-aws", None), "AKPAGE": ("s3cret-of-aws", None),
        "AKTEMP": ("s3cret-of-aws", "s3cret-token")}
HOUR = datetime.timedelta(hours=1)
FIFTEEN_MINUTES = datetime.timedelta(minutes=15)
taken = []


class Refused(Exception):
    def __init__(self, name, message="no", status=400):
        super().__init__(name)
        self.name, self.message, self.status = name, message, status


class SignedBefore(SigV4Auth):
    """Signs at the time that the request names."""

    def add_auth(self, request, stamp):
        request.context["timestamp"] = stamp
        request.context["signing"] = {}
        canonical = self.canonical_request(request)
        return self.signature(self.string_to_sign(request, canonical), request)


def parts_of(authorization):
    words = authorization.removeprefix("AWS4-HMAC-SHA256 ").split(", ")
    return dict(word.split("=", 1) for word in words)


def check_signature(method, target, headers, body):
    if "Authorization" not in headers:
        raise Refused("MissingAuthenticationToken", status=403)
    parts = parts_of(headers["Authorization"])
    key, date, region, service, _ = parts["Credential"].split("/")
    role = re.fullmatch(r"ROLE(\d+)x\d+", key)
    if role and int(role[1]) < 1000 * time.time():
        raise Refused("ExpiredTokenException", "The security token is expired.", 403)
    if not role and key not in KEYS:
        raise Refused("UnrecognizedClientException", "The security token is invalid.", 403)
    secret, token = ("s3cret-of-role", "t0ken-of-" + key) if role else KEYS[key]
    if token and headers.get("X-Amz-Security-Token") != token:
        raise Refused("ExpiredTokenException", "The security token is expired.", 403)
    stamp = headers["X-Amz-Date"]
    now = datetime.datetime.now(datetime.timezone.utc) + (HOUR if region.startswith("skewed") else 0 * HOUR)
    signed = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if abs(now - signed) > FIFTEEN_MINUTES:
        raise Refused("InvalidSignatureException", f"Signature expired: {stamp} is now earlier", 403)
    names = parts["SignedHeaders"].split(";")
    wanted = {"host", "x-amz-date", "content-type"} | ({"x-amz-target"} if "X-Amz-Target" in headers else set())
    if not wanted <= set(names):
        raise Refused("IncompleteSignature", status=403)
    # botocore signs all headers but a few, so it is given those that were signed.
    request = AWSRequest(method=method, url=f"http://{headers['Host']}{target}", data=body,
                         headers={name: headers[name] for name in names})
    signer = SignedBefore(Credentials(key, secret, token), service, region)
    if signer.add_auth(request, stamp) != parts["Signature"]:
        said = f"The signature does not match. The canonical string is 'POST x-amz-security-token:{token}'"
        raise Refused("InvalidSignatureException", said, 403)
    if key == "AKPOOR":
        raise Refused("com.amazon.coral.service#AccessDeniedException", "not authorized", 400)
    return now


def check_rights_of_page(service, action, queue):
    """Batches need the right to send one."""
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/brokers" / f"{service}.md"
    statement = json.loads(re.search(r"```json\n(.*?)```", page.read_text(), re.DOTALL)[1])
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    name = statement["Resource"].rsplit(":", 1)[-1]
    if f"{service}:{action.removesuffix('Batch')}" not in actions or not fnmatch.fnmatchcase(queue, name):
        raise Refused("com.amazon.coral.service#AccessDeniedException", f"not authorized to {action}", 400)


def send(queue, entries):
    if queue == "throttled":
        raise Refused("com.amazonaws.sqs#RequestThrottled", "slower", 400)
    if queue == "denied":
        raise Refused("com.amazon.coral.service#AccessDeniedException", "not authorized to sqs:sendmessage")
    if queue == "strange":
        raise Refused("SomethingNew", "oh" * 500_000)
    if queue == "broken":
        raise Refused("InternalFailure", "oh", 500)
    if queue == "toolong" and any(entry["MessageBody"] == "long" for entry in entries):
        raise Refused("com.amazonaws.sqs#BatchRequestTooLong", "too long")
    done, failed = [], []
    for entry in entries:
        word, _, code = entry["MessageBody"].partition(" ")
        if queue == "partly" and word in ("refuse", "fault"):
            failed.append({"Id": entry["Id"], "Code": code, "Message": "because", "SenderFault": word == "refuse"})
        elif queue == "partly" and word == "forget":
            continue
        else:
            taken.append(entry["MessageBody"])
            done.append({"Id": entry["Id"], "MessageId": "m"})
    return {"Successful": done, "Failed": failed}


class Json:
    """The protocol of SQS."""

    media_type = "application/x-amz-json-1.0"

    def read(self, headers, body):
        request = json.loads(body)
        queue = request.get("QueueName") or request.get("QueueUrl", "").rsplit("/", 1)[-1]
        return headers["X-Amz-Target"].split(".")[1], queue, request.get("Entries", [])

    def answer(self, _, result):
        return json.dumps(result)

    def fault(self, refused):
        return json.dumps({"__type": refused.name, "message": refused.message})


class Query:
    """The protocol of SNS."""

    media_type = "text/xml"
    NAMES = {"InvalidSignatureException": "SignatureDoesNotMatch", "AccessDeniedException": "AuthorizationError",
             "ExpiredTokenException": "ExpiredToken", "UnrecognizedClientException": "InvalidClientTokenId",
             "RequestThrottled": "Throttling"}

    def read(self, _, body):
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
        entry = "PublishBatchRequestEntries.member.{}.{}"
        entries = [{"Id": form[entry.format(i, "Id")], "MessageBody": form[entry.format(i, "Message")]}
                   for i in range(1, 11) if entry.format(i, "Id") in form]
        return form["Action"], form.get("TopicArn", "").rsplit(":", 1)[-1], entries

    def xml(self, value):
        if isinstance(value, dict):
            return "".join(f"<{name}>{self.xml(part)}</{name}>" for name, part in value.items())
        if isinstance(value, list):
            return "".join(f"<member>{self.xml(part)}</member>" for part in value)
        return ("false", "true")[value] if isinstance(value, bool) else escape(str(value))

    def answer(self, action, result):
        return self.xml({f"{action}Response": {f"{action}Result": result}})

    def fault(self, refused):
        name = refused.name.rsplit("#", 1)[-1]
        return self.xml({"ErrorResponse": {"Error": {"Type": "Sender", "Code": self.NAMES.get(name, name),
                                                     "Message": refused.message}}})


def act(action, queue, entries, region):
    if action.startswith("List") and region.startswith("empty"):
        return None
    if action == "ListQueues":
        return {"QueueUrls": [f"https://x/1/{name}" for name in ("partly", "orders.fifo")]}
    if action == "ListTopics":
        return {"Topics": [{"TopicArn": f"arn:aws:sns:r:123456789012:{name}"} for name in ("partly", "orders.fifo")]}
    if action in ("GetQueueUrl", "PublishBatch") and queue == "missing":
        name = "NotFound" if action == "PublishBatch" else "com.amazonaws.sqs#QueueDoesNotExist"
        raise Refused(name, "It does not exist.", 404 if action == "PublishBatch" else 400)
    if action == "GetQueueUrl":
        return {"QueueUrl": "https://elsewhere.test/1/" + queue}
    if action in ("SendMessageBatch", "PublishBatch"):
        return send(queue, entries)
    raise Refused("UnknownOperationException")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.now = datetime.datetime.now(datetime.timezone.utc)
        speech = Json() if "X-Amz-Target" in self.headers else Query()
        try:
            self.now = check_signature("POST", self.path, self.headers, body)
            action, queue, entries = speech.read(self.headers, body)
            key, _, region, service, _ = parts_of(self.headers["Authorization"])["Credential"].split("/")
            if key == "AKPAGE":
                check_rights_of_page(service, action, queue)
            result = act(action, queue, entries, region)
            status, text = 200, "<html></html>" if result is None else speech.answer(action, result)
        except Refused as refused:
            status, text = refused.status, speech.fault(refused)
            if "skewed" in self.headers.get("Authorization", ""):
                self.now = datetime.datetime.now(datetime.timezone.utc) + HOUR
        self.send_response(status)
        self.send_header("Content-Type", speech.media_type)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def date_time_string(self, timestamp=None):
        return email.utils.format_datetime(self.now, usegmt=True)

    def log_message(self, *arguments):
        pass


serve(Handler)
