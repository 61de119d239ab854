"""What the tests do at SQS without our own code: boto3.

usage: client.py PORT make QUEUE [NAME=VALUE...]   makes a queue; FIFO by its name
       client.py PORT remove QUEUE
       client.py PORT count QUEUE                  how many messages are in it
       client.py PORT read QUEUE COUNT SECONDS READERS   takes them, a JSON object a line
"""

import base64
import json
import sys
import threading
import time
from urllib.parse import unquote

import boto3
from botocore.config import Config


def service(port, connections, name="sqs"):
    return boto3.client(name, endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                        aws_access_key_id="x", aws_secret_access_key="x",
                        config=Config(max_pool_connections=connections, retries={"max_attempts": 1}))


def text(value):
    return unquote(value[len("UTF-8''"):], errors="surrogateescape")


def headers_of(message):
    attributes = message.get("MessageAttributes", {})
    if "outbox-headers" not in attributes:
        return [[name, value["StringValue"]] for name, value in attributes.items()]
    pairs = json.loads(attributes["outbox-headers"]["StringValue"])
    return [[name[:-1], text(value)] if name.endswith("*") else [name, value]
            for name, value in pairs]


def show(message):
    headers = headers_of(message)
    named = dict(headers)
    body = message["Body"]
    kind = named.get("outbox-body")
    value = {None: body.encode(), "null": None, "empty": b"",
             "base64": base64.b64decode(body) if kind == "base64" else b""}[kind]
    system = message.get("Attributes", {})
    print(json.dumps({
        "id": named.get("id"), "key": named.get("outbox-key"), "body": body,
        "group": system.get("MessageGroupId"), "dedup": system.get("MessageDeduplicationId"),
        "attributes": sorted(message.get("MessageAttributes", {})),
        "value": None if value is None else base64.b64encode(value).decode(),
        "headers": [pair for pair in headers if pair[0] not in ("outbox-key", "outbox-body")]}))


def read(sqs, url, count, seconds, readers):
    got, ids = [], set()
    lock = threading.Lock()
    end = time.monotonic() + seconds

    def take():
        empty = 0
        while time.monotonic() < end and (len(ids) < count or empty < 2):
            messages = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1 if len(ids) < count else 0,
                MessageAttributeNames=["All"], AttributeNames=["All"]).get("Messages", [])
            empty = 0 if messages else empty + 1
            if not messages:
                continue
            with lock:
                got.extend(messages)
                ids.update(dict(headers_of(message)).get("id", "") for message in messages)
            sqs.delete_message_batch(QueueUrl=url, Entries=[
                {"Id": str(i), "ReceiptHandle": message["ReceiptHandle"]}
                for i, message in enumerate(messages)])

    threads = [threading.Thread(target=take) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for message in got:
        show(message)


def main():
    port, command, queue, *rest = sys.argv[1:]
    readers = int(rest[2]) if command == "read" else 1
    sqs = service(int(port), readers)
    if command == "make":
        attributes = dict(word.split("=", 1) for word in rest)
        if queue.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        print(sqs.create_queue(QueueName=queue, Attributes=attributes)["QueueUrl"])
        return
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    if command == "remove":
        sqs.delete_queue(QueueUrl=url)
    elif command == "count":
        name = "ApproximateNumberOfMessages"
        print(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])
    elif command == "read":
        read(sqs, url, int(rest[0]), float(rest[1]), readers)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
