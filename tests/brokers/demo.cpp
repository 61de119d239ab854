#include "tests/brokers/demo.h"

#include <chrono>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace outbox::test {

Finished run_demo(const std::string& to) {
    const TemporaryFolder folder("demo");
    return run({.command = {"/usr/bin/python3", "-B", DEMO, PROGRAMS, "--to", to},
                .environment = {{"TMPDIR", folder.path().string()}}},
               std::chrono::seconds(240));
}

std::size_t events_of_demo(const std::string& to) {
    const Finished done = run_demo(to);
    EXPECT_EQ(done.status, (ExitStatus{0, 0})) << done.out << done.err;
    EXPECT_EQ((done.out + done.err).find("s3cret"), std::string::npos);
    const std::string said = ", has acknowledged each of the ";
    const std::size_t at = done.out.find(said);
    EXPECT_NE(at, std::string::npos) << done.out;
    const std::size_t count =
        at == std::string::npos ? 0 : std::stoul(done.out.substr(at + said.size()));
    EXPECT_GT(count, 500U) << done.out;
    return count;
}

std::set<std::string> ids_of(const std::vector<Arrived>& arrived) {
    std::set<std::string> ids;
    for (const Arrived& record : arrived) ids.insert(record.id);
    return ids;
}

}  // namespace outbox::test
