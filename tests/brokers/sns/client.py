"""What the tests do at SNS without our own code: boto3.

usage: client.py PORT make TOPIC     makes it, and a queue of its name that subscribes to it, raw
       client.py PORT remove TOPIC
       client.py PORT read TOPIC COUNT SECONDS READERS   what came to the queue, a JSON object a line
"""

import json
import pathlib
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "sqs"))
from client import headers_of, service, show  # noqa: E402, the one of SQS

ARN = "arn:aws:{}:us-east-1:123456789012:{}"


def make(port, topic):
    fifo = topic.endswith(".fifo")
    arn = service(port, 1, "sns").create_topic(
        Name=topic, Attributes={"FifoTopic": "true"} if fifo else {})["TopicArn"]
    service(port, 1).create_queue(QueueName=topic, Attributes={"FifoQueue": "true"} if fifo else {})
    service(port, 1, "sns").subscribe(TopicArn=arn, Protocol="sqs", Endpoint=ARN.format("sqs", topic),
                                      Attributes={"RawMessageDelivery": "true"})


def read(port, topic, count, seconds):
    end = time.monotonic() + seconds
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/queue/{topic}") as answer:
            messages = json.load(answer)
        ids = {dict(headers_of(message)).get("id", "") for message in messages}
        if len(ids) >= count or time.monotonic() > end:
            break
    for message in messages:
        show(message)


def main():
    port, command, topic, *rest = sys.argv[1:]
    if command == "make":
        make(int(port), topic)
    elif command == "remove":
        service(int(port), 1, "sns").delete_topic(TopicArn=ARN.format("sns", topic))
    elif command == "read":
        read(int(port), topic, int(rest[0]), float(rest[1]))
    else:
        sys.exit(__doc__)


main()
