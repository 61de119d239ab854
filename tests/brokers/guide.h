#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// A page of docs/brokers as a reader runs it, in a folder of its own, against a test's server.
class Guide {
  public:
    struct Here {
        // What stands on the page, and what is here in its place; each must be there.
        std::vector<std::pair<std::string, std::string>> words = {};
        std::map<std::string, std::string> environment = {};
        // Programs that are not in the PATH by the names that the page has for them: shell.
        std::map<std::string, std::string> programs = {};
    };
    Guide(const std::string& page, Here here);

    // The first block in `sh`: what is before `outbox relay`, then the relay, and beside it what
    // reads, until that shows the event of order o-1.
    void expect_an_event();
    // The block in this language with this number, from 0; "" and a failure where there is none.
    [[nodiscard]] std::string block(const std::string& language, std::size_t number) const;
    // Runs a block in `sh`, which must succeed.
    void run_block(std::size_t number) const;

  private:
    [[nodiscard]] std::string with_words_of_here(std::string text) const;
    [[nodiscard]] ProcessOptions shell(const std::string& script) const;

    TemporaryFolder folder_{"guide"};
    std::string page_;
    Here here_;
};

}  // namespace outbox::test
