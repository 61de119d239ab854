"""Reads messages as CloudEvents with the project's official SDK.

usage: cloud_events.py {kafka|http|amqp}   JSON objects from stdin, a line each: headers (a list of
                                           name and value), key, value (Base64), content_type

Prints the attributes of each and its data, JSON as a value, else as text or Base64.
"""

import base64
import datetime
import json
import sys

from cloudevents.core.bindings import amqp, http, kafka


def plain(value):
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).isoformat()
    return value


def event_of(binding, message):
    value = base64.b64decode(message["value"])
    headers = dict(message["headers"])
    if binding == "kafka":
        encoded = {name: text.encode() for name, text in headers.items()}
        key = None if message["key"] is None else message["key"].encode()
        return kafka.from_kafka_event(kafka.KafkaMessage(encoded, key, value))
    if binding == "http":
        return http.from_http_event(http.HTTPMessage(headers, value))
    return amqp.from_amqp_event(
        amqp.AMQPMessage({"content-type": message["content_type"]}, headers, value))


def main():
    for line in sys.stdin:
        event = event_of(sys.argv[1], json.loads(line))
        data = event.get_data()
        if isinstance(data, bytes):
            data = {"base64": base64.b64encode(data).decode()}
        attributes = {name: plain(value) for name, value in event.get_attributes().items()}
        print(json.dumps({"attributes": attributes, "data": data}))


main()
