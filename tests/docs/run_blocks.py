"""Every block of README.md and of the pages below docs/ that is a command or code is run by a test that reads it
from its page, or stands in the table with the reason why not. One that is added is found by its number.

usage: run_blocks.py ROOT
"""

import collections
import pathlib
import re
import sys

# Page, language, how many (*: all, where the test fails at one that it does not know), and who runs them or "-" and why
# nobody does.
TABLE = """
README.md                plain  1 tests/docs/examples.py
README.md                plain  3 - a picture; script/demo and script/test, which tests/dashboard/demo_test.py and .ci/run run; what the demo prints
README.md                sql    1 tests/docs/examples.py
docs/brokers/kafka.md    sh     1 tests/brokers/kafka/page_test.cpp
docs/brokers/mqtt.md     sh     1 tests/brokers/mqtt/relay_test.cpp
docs/brokers/mqtt.md     conf   1 tests/brokers/mqtt/failure_test.cpp
docs/brokers/nats.md     sh     2 tests/brokers/nats/relay_test.cpp
docs/brokers/nats.md     cpp    1 tests/brokers/nats/queue_test.cpp
docs/brokers/nats.md     conf   1 tests/brokers/nats/failure_test.cpp
docs/brokers/pulsar.md   sh     2 tests/brokers/pulsar/relay_test.cpp
docs/brokers/rabbitmq.md sh     1 tests/brokers/rabbitmq/relay_test.cpp
docs/brokers/rabbitmq.md cpp    1 tests/brokers/rabbitmq/queue_test.cpp
docs/brokers/redis.md    sh     2 tests/brokers/redis/relay_test.cpp
docs/brokers/redis.md    cpp    1 tests/brokers/redis/queue_test.cpp
docs/brokers/sns.md      sh     1 tests/brokers/sns/relay_test.cpp
docs/brokers/sns.md      json   1 tests/brokers/aws/aws.py
docs/brokers/sqs.md      sh     1 tests/brokers/sqs/relay_test.cpp
docs/brokers/sqs.md      json   1 tests/brokers/aws/aws.py
docs/brokers/webhook.md  sh     2 tests/webhook/guide_test.cpp
docs/brokers/webhook.md  python 2 tests/webhook/guide_test.cpp
docs/claim-check.md      toml   1 tests/docs/examples.py
docs/claim-check.md      cpp    1 tests/claim/relay_test.cpp
docs/claim-check.md      plain  1 - headers of a record
docs/claim-check.md      json   1 - the note in a record
docs/cookbook.md         sql    4 tests/cli/guide_test.cpp
docs/dashboard.md        plain  3 tests/docs/examples.py
docs/debezium.md         *      * tests/e2e/docs_test.cpp
docs/formats.md          plain  4 tests/codec/page_test.cpp
docs/formats.md          toml   1 tests/docs/examples.py
docs/keep.md             plain  1 tests/docs/examples.py
docs/keep.md             sql    1 tests/docs/examples.py
docs/languages/README.md sql    1 tests/polyglot/page_test.cpp
docs/languages/go.md     *      * tests/docs/language_pages.py
docs/languages/java.md   *      * tests/docs/language_pages.py
docs/languages/node.md   *      * tests/docs/language_pages.py
docs/languages/python.md *      * tests/docs/language_pages.py
docs/languages/rust.md   *      * tests/docs/language_pages.py
docs/operating.md        plain  1 tests/docs/examples.py
docs/operating.md        plain  1 tests/packaging/chart.py
docs/operating.md        plain  2 - what top and explain show
docs/operating.md        plain  2 - systemctl and podman: no systemd runs where the tests do, and no engine has to be there; tests/packaging/deb.sh and container.py do what they would
docs/peers.md            plain  1 - compares with other programs for hours, on a machine of its own
docs/receiving.md        plain  2 tests/docs/examples.py
docs/receiving.md        cpp    5 tests/consumer/receiving_guide_test.cpp
docs/receiving.md        sql    1 tests/consumer/libpq_consumer_test.cpp
docs/receiving.md        sql    2 tests/consumer/mailbox_sql_test.cpp
docs/replay.md           plain  1 tests/cli/replay_test.cpp
docs/sagas.md            cpp    4 tests/e2e/orders_orchestrated_test.cpp
docs/sagas.md            plain  1 tests/docs/examples.py
docs/sagas.md            sql    1 tests/docs/examples.py
docs/schemas.md          *      * tests/schema/relay_test.cpp
docs/security.md         toml   4 tests/cli/kafka_transport_test.cpp
docs/start.md            *      * tests/e2e/docs_test.cpp
docs/tenants.md          plain  1 tests/docs/examples.py
docs/tenants.md          toml   1 tests/docs/examples.py
docs/tracing.md          sh     1 tests/docs/examples.py
docs/tracing.md          cpp    1 tests/tracing/consumer_test.cpp
"""
BLOCK = re.compile(r"^ *```([^`\n]*)\n((?:.*\n)*?) *```$", re.MULTILINE)


def names_page(root, test, page):
    """Whether the test, or what builds it, names the page."""
    path, name = pathlib.PurePath(page), re.escape(pathlib.PurePath(page).stem)
    texts = [file.read_text() for file in (root / test, (root / test).with_name("CMakeLists.txt")) if file.is_file()]
    named = rf'\b{name}\.md\b|"{name}"'
    return any(re.search(named, text) or f'"{path.parent}"' in text for text in texts)


def main():
    root = pathlib.Path(sys.argv[1])
    faults, left = [], {}
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for language, _ in BLOCK.findall(page.read_text()):
            left.setdefault(str(page.relative_to(root)), collections.Counter())[language or "plain"] += 1
    for row in TABLE.strip().splitlines():
        page, language, count, test = row.split(maxsplit=3)
        blocks = left.setdefault(page, collections.Counter())
        if language == "*":
            blocks.clear()
        else:
            blocks[language] -= int(count)
        if not test.startswith("- ") and not ((root / test).is_file() and names_page(root, test, page)):
            faults.append(f"{test} does not read {page}")
    for page, languages in left.items():
        faults += [f"{page}: {abs(count)} {language} {'more' if count > 0 else 'fewer'} than the table of run_blocks.py has: "
                   "which test runs what?" for language, count in languages.items() if count]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
