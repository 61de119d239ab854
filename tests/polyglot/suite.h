#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>

#include "tests/polyglot/program.h"
#include "tests/support/http_client.h"

namespace outbox::test {

// What holds for the program of each language; all share one database of orders and one relay.
class Polyglot : public testing::TestWithParam<std::string> {
  protected:
    static void SetUpTestSuite() { shop = std::make_unique<Shop>(); }
    static void TearDownTestSuite() { shop.reset(); }

    void SetUp() override;

    // An order's name that no other test uses.
    std::string order(const std::string& name) const { return prefix_ + name; }

    void place(const std::string& lines, int exit_code = 0);

    inline static std::unique_ptr<Shop> shop;
    std::unique_ptr<Program> program_;
    std::string prefix_;
};

// The same for its HTTP endpoint, which runs during the test.
class PolyglotHttp : public Polyglot {
  protected:
    void SetUp() override;

    HttpAnswer post(const std::string& text, const std::string& key,
                    const std::string& user = "alice") const;

    // "VERSION EVENTS" of an order.
    static std::string outcome(const std::string& name);

    std::optional<Process> server_;
    int port_ = 0;
};

}  // namespace outbox::test
