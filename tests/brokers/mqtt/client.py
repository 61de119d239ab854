"""What the tests do at an MQTT broker without our own code: paho-mqtt.

usage: client.py PORT subscribe SESSION TOPIC   a session that the broker keeps, and its subscription
       client.py PORT read SESSION COUNT SECONDS  what it has got since, a JSON object a line
       client.py PORT retained TOPIC            the last message, which the broker keeps
"""

import base64
import json
import sys
import time
from urllib.parse import unquote

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

DAY = 86_400


def connected(port, session):
    """A client whose session outlives it; what comes is in its list `got`."""
    client = mqtt.Client(client_id=session, protocol=mqtt.MQTTv5)
    client.username_pw_set("reader", "s3cret")
    client.got, client.answers = [], []
    client.on_message = lambda _client, _data, message: client.got.append(message)
    client.on_subscribe = lambda *arguments: client.answers.append(arguments)
    client.on_connect = lambda *arguments: client.answers.append(arguments)
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = DAY
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    wait(client, lambda: client.answers)
    if client.answers[0][3] != 0:
        sys.exit(f"refused: {client.answers[0][3]}")
    return client


def wait(client, done, seconds=60):
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        client.loop(timeout=0.2)


def subscribe(client, topic):
    client.answers.clear()
    client.subscribe(topic, options=SubscribeOptions(qos=1))
    wait(client, lambda: client.answers)


def show(message):
    headers = []
    for name, value in getattr(message.properties, "UserProperty", []):
        if name.endswith("*") and value.startswith("UTF-8''"):
            name, value = name[:-1], unquote(value[len("UTF-8''"):], errors="surrogateescape")
        headers.append([name, value])
    named = dict(headers)
    print(json.dumps({
        "topic": message.topic, "id": named.get("id"), "key": named.get("outbox-key"),
        "content_type": getattr(message.properties, "ContentType", None), "qos": message.qos, "retained": bool(message.retain),
        "value": None if "outbox-null" in named else base64.b64encode(message.payload).decode(),
        "headers": [pair for pair in headers if pair[0] not in ("outbox-key", "outbox-null")]}))


def read(client, count, seconds):
    def ids():
        return {dict(message.properties.UserProperty).get("id") for message in client.got}

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = len(client.got)
        wait(client, lambda: False, 0.5)
        if len(client.got) == before and len(ids()) >= count:
            break


def main():
    port, command, name, *rest = sys.argv[1:]
    client = connected(int(port), "reader-" + name)
    if command == "subscribe":
        subscribe(client, rest[0])
    elif command == "read":
        read(client, int(rest[0]), float(rest[1]))
    elif command == "retained":
        subscribe(client, name)
        wait(client, lambda: client.got)
    else:
        sys.exit(__doc__)
    for message in client.got:
        show(message)
    client.disconnect()


main()
