"""`aws` as the pages of SQS and SNS use it, by botocore, whose model of the services names operations
and parameters as AWS' own program does; what the model does not know is refused.

usage: cli.py ENDPOINT SERVICE OPERATION [--parameter VALUE...] [--query JMESPATH] [--output text]
"""

import json
import sys

import boto3
import jmespath
from botocore import xform_name

RENAMED = {"notification-endpoint": "endpoint"}  # which is another option of that program


def value_of(shape, words):
    """As the program reads it: NAME=VALUE of a map, several words of a list."""
    if shape.type_name == "map":
        return dict(pair.split("=", 1) for word in words for pair in word.split(","))
    if shape.type_name == "list":
        return words
    [word] = words
    return {"integer": int, "string": str}[shape.type_name](word)


def main():
    endpoint, service, operation, *words = sys.argv[1:]
    options = {}
    for word in words:
        if word.startswith("--"):
            options[word[2:]] = values = []
        else:
            values.append(word)
    [query] = options.pop("query", [None])
    [output] = options.pop("output", ["json"])
    client = boto3.client(service, endpoint_url=endpoint, region_name="eu-central-1",
                          aws_access_key_id="x", aws_secret_access_key="x")
    model = client.meta.service_model
    [name] = [name for name in model.operation_names if xform_name(name, "-") == operation]
    members = model.operation_model(name).input_shape.members
    by_option = {xform_name(member, "-"): (member, shape) for member, shape in members.items()}
    parameters = {}
    for option, given in options.items():
        member, shape = by_option[RENAMED.get(option, option)]
        parameters[member] = value_of(shape, given)
    answer = getattr(client, xform_name(name))(**parameters)
    answer.pop("ResponseMetadata")
    if query:
        answer = jmespath.search(query, answer)
    print(answer if output == "text" else json.dumps(answer, indent=4))


main()
