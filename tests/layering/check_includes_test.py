"""Plants violations in a small tree and sees that each one, and nothing else, is found."""

import pathlib
import tempfile
import unittest

import check_includes

CLEAN = {
    "include/outbox/event.h": "#include <string>\n#include <outbox/error.h>\n",
    "include/outbox/error.h": "#include <string>\n",
    "include/outbox/adapters/libpq.h": "#include <libpq-fe.h>\n",
    "src/core/ledger.h": '#include <chrono>\n#include <outbox/event.h>\n#include "core/lanes.h"\n',
    "src/core/lanes.h": "#include <vector>\n#include <xxhash.h>\n",
    "src/relay/relay.h": '#include <thread>\n#include "core/ledger.h"\n',
    "src/databases/postgres/client.h": '#include <libpq-fe.h>\n#include "core/ledger.h"\n',
    "src/databases/postgres/source.cpp": '#include "databases/postgres/client.h"\n',
    "src/brokers/kafka/sink.cpp": "#include <librdkafka/rdkafka.h>\n#include <outbox/event.h>\n",
    "src/runtime/config.h": '#include "relay/relay.h"\n',
    "apps/outbox/main.cpp": '#include "brokers/kafka/sink.h"\n#include "runtime/config.h"\n',
    "examples/orders/main.cpp": '#include "orders.h"\n#include <outbox/event.h>\n',
    "examples/orders/orders.h": "#include <sqlite3.h>\n",
}

PLANTED = [
    ("src/core/ledger.h", '#include "relay/relay.h"', "core may not include relay/relay.h"),
    ("src/core/ledger.h", "#include <fstream>", "core includes <fstream>"),
    ("src/core/ledger.h", "#include <sys/socket.h>", "core includes the library header"),
    ("src/core/ledger.h", "auto t = std::chrono::steady_clock::now();", "core reads a clock"),
    ("src/relay/relay.h", '#include "runtime/config.h"', "relay may not include"),
    ("src/relay/relay.h", '#include "brokers/kafka/sink.h"', "relay may not include"),
    ("src/relay/relay.h", '#include "databases/sqlite/client.h"', "relay may not include"),
    ("src/databases/postgres/client.h", '#include "databases/sqlite/client.h"', "another backend"),
    ("src/databases/postgres/client.h", '#include "brokers/kafka/sink.h"', "databases may not include"),
    ("src/brokers/kafka/sink.cpp", '#include "relay/relay.h"', "brokers may not include"),
    ("src/brokers/kafka/sink.cpp", '#include "runtime/config.h"', "brokers may not include"),
    ("src/runtime/config.h", '#include "admin/server.h"', "runtime may not include"),
    ("src/runtime/config.h", '#include "../relay/relay.h"', "climbs out"),
    ("include/outbox/event.h", "#include <libpq-fe.h>", "a public header outside adapters/"),
    ("include/outbox/event.h", '#include "core/ledger.h"', "public may not include"),
    ("examples/orders/main.cpp", '#include "core/ledger.h"', "an example includes core/ledger.h"),
    ("src/helpers/strings.h", "#include <string>", "has no place in the layering"),
]


class CheckIncludesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in CLEAN.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_accepts_the_clean_tree(self):
        self.assertEqual(list(check_includes.violations(self.root)), [])

    def test_finds_each_planted_violation(self):
        for name, line, message in PLANTED:
            with self.subTest(line=line, name=name):
                self.write(name, CLEAN.get(name, "") + line + "\n")
                found = list(check_includes.violations(self.root))
                self.assertEqual(len(found), 1, found)
                self.assertIn(message, found[0])
                self.assertTrue(found[0].startswith(name + ":"), found)
                (self.root / name).unlink()
                if name in CLEAN:
                    self.write(name, CLEAN[name])


if __name__ == "__main__":
    unittest.main()
