"""What the tests do at RabbitMQ without our own code: pika, and the broker's HTTP API.

usage: client.py URL declare QUEUE [EXCHANGE [KEY [ARGUMENTS]]]   the queue, bound; arguments as JSON
       client.py URL exchange NAME TYPE | remove-exchange NAME
       client.py URL remove-queue NAME
       client.py URL publish EXCHANGE                             JSON objects from stdin, a line each:
                                                                  id, topic, key, value, headers, and
                                                                  type, content_type if it has them
       client.py URL left QUEUE                                   messages there, once nobody reads it
       client.py URL read QUEUE COUNT SECONDS                     what is in it, a JSON object a line
       client.py URL api METHOD PATH [BODY]                       URL is that of the HTTP API
"""

import base64
import json
import sys
import time
import urllib.parse
import urllib.request

import pika


def text(value):
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def read(channel, queue, count, seconds):
    """Prints messages until `count` ids have come and a moment has been silent."""
    ids = set()
    end = time.monotonic() + seconds
    channel.basic_qos(prefetch_count=1000)
    stream = {"x-stream-offset": "first"} if queue.endswith("-stream") else None
    for method, properties, body in channel.consume(queue, inactivity_timeout=0.3, arguments=stream):
        if method is None:
            if len(ids) >= count or time.monotonic() > end:
                break
            continue
        channel.basic_ack(method.delivery_tag)
        ids.add(properties.message_id)
        headers = properties.headers or {}
        print(json.dumps({
            "id": properties.message_id, "key": headers.pop("outbox-key", None),
            "null": headers.pop("outbox-null", False), "value": base64.b64encode(body).decode(),
            "headers": [[name, text(value)] for name, value in headers.items()
                        if not name.startswith("x-stream")],
            "type": properties.type, "timestamp": properties.timestamp, "app_id": properties.app_id,
            "content_type": properties.content_type, "delivery_mode": properties.delivery_mode,
            "routing_key": method.routing_key}))
    channel.cancel()


def declare(channel, queue, exchange="", key=None, arguments="{}"):
    channel.queue_declare(queue, durable=True, arguments=json.loads(arguments))
    if exchange:
        channel.queue_bind(queue, exchange, queue if key is None else key)


def publish(channel, exchange):
    returned = []
    channel.add_on_return_callback(lambda *arguments: returned.append(arguments))
    channel.tx_select()
    for line in sys.stdin:
        letter = json.loads(line)
        headers = dict(letter["headers"])
        if letter["key"] is not None:
            headers["outbox-key"] = letter["key"]
        properties = pika.BasicProperties(message_id=letter["id"] or None, delivery_mode=2, headers=headers,
                                          type=letter.get("type"), content_type=letter.get("content_type"))
        channel.basic_publish(exchange, letter["topic"], letter["value"].encode(), properties, mandatory=True)
    channel.tx_commit()
    channel.connection.process_data_events()
    if returned:
        sys.exit(f"no queue is bound for {len(returned)} messages")


def left(channel, queue):
    """What unsettled consumers had taken is counted again once they are gone."""
    while True:
        state = channel.queue_declare(queue, passive=True).method
        if state.consumer_count == 0:
            return state.message_count
        time.sleep(0.01)


def api(url, method, path, body=None):
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/{path}", method=method,
                                     data=None if body is None else body.encode())
    password = base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()
    request.add_header("Authorization", "Basic " + password)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as answer:
        print(answer.read().decode())


def main():
    url, command, *rest = sys.argv[1:]
    if command == "api":
        api(url, *rest)
        return
    parameters = pika.URLParameters(url)
    parameters.socket_timeout, parameters.stack_timeout = 60, 120
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    if command == "read":
        read(channel, rest[0], int(rest[1]), float(rest[2]))
    elif command == "declare":
        declare(channel, *rest)
    elif command == "remove-queue":
        channel.queue_delete(rest[0])
    elif command == "publish":
        publish(channel, *rest)
    elif command == "left":
        print(left(channel, *rest))
    elif command == "exchange":
        channel.exchange_declare(rest[0], rest[1], durable=True)
    elif command == "remove-exchange":
        channel.exchange_delete(rest[0])
    else:
        sys.exit(__doc__)
    connection.close()


main()
