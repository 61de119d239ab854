"""What the tests do at S3 without our own code: boto3.

usage: s3_client.py PORT make          makes the bucket payloads
       s3_client.py PORT read KEY      its bytes, as Base64
       s3_client.py PORT remove KEY
       s3_client.py PORT count         how many objects are in the bucket
"""

import base64
import sys

import boto3
from botocore.config import Config

BUCKET = "payloads"


def main():
    port, action, *rest = sys.argv[1:]
    s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                      aws_access_key_id="relay", aws_secret_access_key="s3cret-key",
                      config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1},
                                    request_checksum_calculation="when_required",
                                    response_checksum_validation="when_required"))
    if action == "make":
        s3.create_bucket(Bucket=BUCKET)
    elif action == "read":
        body = s3.get_object(Bucket=BUCKET, Key=rest[0])["Body"].read()
        sys.stdout.write(base64.b64encode(body).decode())
    elif action == "remove":
        s3.delete_object(Bucket=BUCKET, Key=rest[0])
    elif action == "count":
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        print(sum(page["KeyCount"] for page in pages))


main()
