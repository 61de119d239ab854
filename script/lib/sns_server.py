"""Serves the services of AWS that moto plays, SNS and SQS among them: sns_server.py PORT. Over
connections that stay open, without a line for each request, and GET /queue/NAME gives what is in a
queue, as a JSON list; beyond that it is moto's own server."""

import functools
import json
import sys

from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs import models
from werkzeug.serving import WSGIRequestHandler, make_server

QUEUE = "/queue/"

# For each message that is sent moto counts all that are in the queue, a dozen times; nobody asks.
for count in ("", "_delayed", "_not_visible"):
    setattr(models.Queue, f"approximate_number_of_messages{count}", 0)
models.camelcase_to_underscores = functools.cache(models.camelcase_to_underscores)


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet

    def log_request(self, *arguments):
        pass


def as_received(message):
    """As ReceiveMessage would give it."""
    system = {"MessageGroupId": message.group_id, "MessageDeduplicationId": message.deduplication_id}
    return {"Body": message.body, "Attributes": system, "MessageAttributes": message.message_attributes}


def serve(environ, start_response):
    if not environ["PATH_INFO"].startswith(QUEUE):
        return moto(environ, start_response)
    queue = models.sqs_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].queues[environ["PATH_INFO"][len(QUEUE):]]
    text = json.dumps([as_received(message) for message in list(queue._messages)]).encode()
    start_response("200 OK", [("Content-Length", str(len(text)))])
    return [text]


moto = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", int(sys.argv[1]), serve, threaded=True, request_handler=Handler)
print("serves", flush=True)
server.serve_forever()
