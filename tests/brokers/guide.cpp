#include "tests/brokers/guide.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/support/eventually.h"

namespace outbox::test {

using namespace std::chrono_literals;

namespace {

std::vector<std::string> blocks(const std::string& page, const std::string& language) {
    std::istringstream lines(page);
    std::vector<std::string> found;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (inside && line == "```") {
            inside = false;
        } else if (inside) {
            found.back() += line + "\n";
        } else if (line == "```" + language) {
            found.emplace_back();
            inside = true;
        }
    }
    return found;
}

}  // namespace

Guide::Guide(const std::string& page, Here here)
    : page_(read_file(std::string(OUTBOX_SOURCE_DIR) + "/docs/brokers/" + page)),
      here_(std::move(here)) {
    std::filesystem::create_directory(folder_ / "bin");
    for (const auto& [name, command] : here_.programs) {
        const auto file = folder_ / "bin" / name;
        std::ofstream(file) << "#!/bin/sh\nexec " << command << " \"$@\"\n";
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    }
}

std::string Guide::block(const std::string& language, std::size_t number) const {
    const auto found = blocks(page_, language);
    EXPECT_LT(number, found.size()) << "the page has no such block in " << language;
    return number < found.size() ? found[number] : "";
}

std::string Guide::with_words_of_here(std::string text) const {
    for (const auto& [there, here] : here_.words) {
        EXPECT_NE(page_.find(there), std::string::npos) << "not on the page any more: " << there;
        for (std::size_t at = 0; (at = text.find(there, at)) != std::string::npos;
             at += here.size()) {
            text.replace(at, there.size(), here);
        }
    }
    return text;
}

ProcessOptions Guide::shell(const std::string& script) const {
    const std::filesystem::path outbox = OUTBOX_BINARY;
    auto environment = here_.environment;
    environment["PATH"] = (folder_ / "bin").string() + ":" + outbox.parent_path().string() + ":" +
                          std::getenv("PATH");
    environment["OUTBOX_ADMIN"] = "off";
    return {.command = {"bash", "-e", "-c", script},
            .environment = environment,
            .working_folder = folder_.path()};
}

void Guide::run_block(std::size_t number) const {
    const std::string script = with_words_of_here(block("sh", number));
    const Finished done = run(shell(script));
    EXPECT_EQ(done.status, (ExitStatus{0, 0})) << script << done.out << done.err;
}

void Guide::expect_an_event() {
    const std::string script = with_words_of_here(block("sh", 0));
    const std::size_t relay_at = script.find("\noutbox relay ");
    ASSERT_NE(relay_at, std::string::npos) << script;
    // Its line goes on where it ends in a backslash.
    std::size_t end = script.find('\n', relay_at + 1);
    while (script[end - 1] == '\\') end = script.find('\n', end + 1);
    const Finished before = run(shell(script.substr(0, relay_at + 1)));
    ASSERT_EQ(before.status, (ExitStatus{0, 0})) << script << before.out << before.err;
    Process relay(shell("exec " + script.substr(relay_at + 1, end - relay_at)));
    const std::string reader = script.substr(end + 1);
    ASSERT_FALSE(reader.empty()) << "nothing on the page reads what arrived: " << script;
    std::string said;
    EXPECT_TRUE(eventually(120s, "the event is read",
                           [&] {
                               const Finished read = run(shell(reader), 60s);
                               said = read.out + read.err;
                               return read.status.code == 0 &&
                                      read.out.find("o-1") != std::string::npos;
                           }))
        << reader << said << relay.stderr_text();
    EXPECT_EQ(relay.stop(), (ExitStatus{0, 0})) << relay.stderr_text();
}

}  // namespace outbox::test
