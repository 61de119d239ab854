"""Plants violations in small trees and sees that each one, and nothing else, is found."""

import pathlib
import tempfile
import unittest

import check_includes
import check_tests

CLEAN = {
    "include/outbox/event.h": "#include <string>\n#include <outbox/error.h>\n",
    "include/outbox/error.h": "#include <string>\n",
    "include/outbox/adapters/libpq.h": "#include <libpq-fe.h>\n",
    "src/core/ledger.h": '#include <chrono>\n#include <outbox/event.h>\n#include "core/lanes.h"\n',
    "src/core/lanes.h": "#include <vector>\n#include <xxhash.h>\n",
    "src/relay/relay.h": (
        '#include <thread>\n#include "core/ledger.h"\n// As kafka has it, by pg_locks.\n'
        'auto example = "postgresql://app@localhost/shop";  // sqlite\nint redistributed, mailbox;\n'
    ),
    "src/databases/postgres/client.h": '#include <libpq-fe.h>\n#include "core/ledger.h"\n',
    "src/databases/postgres/client.cpp": "auto c = PQconnectStartParams(names, values, 1);\n",
    "src/databases/postgres/source.cpp": '#include "databases/postgres/client.h"\n',
    "src/brokers/kafka/sink.cpp": "#include <librdkafka/rdkafka.h>\n#include <outbox/event.h>\n",
    "src/runtime/config.h": '#include "relay/relay.h"\n',
    "src/core/mutex.h": "#include <mutex>\nclass Mutex { std::mutex mutex_; };\n",
    "apps/outbox/main.cpp": '#include "commands.h"\n#include "runtime/config.h"\n',
    "apps/outbox/commands.h": "#include <string>\n",
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
    ("examples/orders/main.cpp", '#include "core/ledger.h"', "examples may not include core/ledger.h"),
    ("apps/outbox/main.cpp", '#include "brokers/kafka/sink.h"', "apps may not include brokers/kafka/sink.h"),
    ("apps/outbox/main.cpp", '#include "databases/sqlite/client.h"', "apps may not include"),
    ("apps/outbox/main.cpp", "    std::mutex mutex_;", "std::mutex: no compiler sees"),
    ("src/relay/relay.h", "const std::lock_guard lock(mutex_);", "std::lock_guard: no compiler sees"),
    ("src/databases/postgres/source.cpp", "std::condition_variable_any changed_;", "std::condition_variable_any:"),
    ("src/databases/postgres/source.cpp", "auto c = PQconnectdb(url);", "PQconnectdb is for"),
    ("src/databases/sqlite/emit.cpp", "sqlite3_exec(c, sql, 0, 0, 0);", "sqlite3_exec is for"),
    ("src/consumer/executor.cpp", "auto t = std::chrono::system_clock::now();", "takes time and randomness from"),
    ("src/mailbox/loop.cpp", "std::random_device random;", "takes time and randomness from"),
    ("src/databases/sqlite/receive/accept.cpp", "\"julianday('now')\"", "takes time and randomness from"),
    ("src/databases/sqlite/saga.cpp", "x(consumer::real_env().clock)", "takes time and randomness from"),
    ("src/relay/relay.h", "enum class Begins { kAtOnce, kPostgres };", "postgres is a backend"),
    ("src/relay/relay.h", "auto text = R\"(a\nb)\"; KafkaSink sink;", "kafka is a backend"),
    ("src/runtime/config.h", "bool is_libpq(const Url& url);", "libpq is a backend"),
    ("apps/outbox/main.cpp", 'auto sql = "SELECT oid FROM pg_class";', "pg_class is of one database"),
    ("src/relay/relay.h", 'auto sql = R"(SELECT name\nFROM sqlite_master)";', "sqlite_master is of one database"),
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

    def test_finds_each_permission_that_nothing_uses(self):
        def of_runtime():
            return [line for line in check_includes.unused(self.root) if line.startswith("runtime may")]

        self.assertEqual(len(of_runtime()), len(check_includes.ALLOWED["runtime"]) - 1, of_runtime())
        self.assertFalse([line for line in of_runtime() if "include relay" in line])
        for other in check_includes.ALLOWED["runtime"] - {"public"}:
            self.write(f"src/runtime/{other}.cpp", f'#include "{other}/any.h"\n')
        self.write("src/runtime/public.cpp", "#include <outbox/event.h>\n")
        self.assertEqual(of_runtime(), [])


class CheckTestsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def unbuilt(self, lists):
        for name in ("tests/core/lanes_test.cpp", "tests/brokers/kafka/sink_test.cpp"):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for name, text in lists.items():
            (self.root / name).write_text(text)
        return [line.split(":")[0] for line in check_tests.unbuilt(self.root)]

    def test_accepts_what_is_named_here_or_above(self):
        lists = {
            "tests/core/CMakeLists.txt": "outbox_test(core_test\n    SOURCES lanes_test.cpp)\n",
            "tests/brokers/CMakeLists.txt": "outbox_test(kafka_test SOURCES kafka/sink_test.cpp)\n",
        }
        self.assertEqual(self.unbuilt(lists), [])

    def test_finds_what_is_not_named_or_only_in_a_comment(self):
        lists = {
            "tests/core/CMakeLists.txt": "# lanes_test.cpp\noutbox_test(core_test SOURCES old_lanes_test.cpp)\n",
            "tests/brokers/CMakeLists.txt": "outbox_test(kafka_test SOURCES sink_test.cpp)\n",
        }
        self.assertEqual(self.unbuilt(lists), ["tests/brokers/kafka/sink_test.cpp", "tests/core/lanes_test.cpp"])


if __name__ == "__main__":
    unittest.main()
