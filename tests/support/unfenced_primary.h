#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

// A primary and the standby that was promoted in its place, both in a URL, in this order; then the
// first comes back, as a primary: nobody fenced it.
class UnfencedPrimary {
  public:
    // `prepare`: what both have.
    explicit UnfencedPrimary(const std::function<void(const std::string& url)>& prepare) {
        using namespace std::chrono_literals;
        prepare(old_.url());
        old_.stop();
        const std::string standby = (folder_ / "standby").string();
        EXPECT_EQ(std::system(("cp -a " + old_.data().string() + " " + standby + " && cp -a " +
                               standby + "/PG_VERSION " + standby + "/standby.signal")
                                  .c_str()),
                  0);
        promoted_.emplace(folder_ / "standby");
        Pg(promoted_->url()).exec("SELECT pg_promote()");
        EXPECT_TRUE(eventually(60s, "the standby is promoted", [&] {
            return Pg(promoted_->url()).value("SELECT pg_is_in_recovery()") == "f";
        }));
    }

    // Of both; `scheme` before it.
    std::string url(const std::string& scheme = "postgresql") const {
        return scheme + "://postgres@127.0.0.1:" + std::to_string(old_.port()) +
               ",127.0.0.1:" + std::to_string(promoted_->port()) +
               "/postgres?target_session_attrs=read-write";
    }
    PostgresServer& old() { return old_; }
    PostgresServer& promoted() { return *promoted_; }

    // And sessions with the one in its place break, but for this.
    void come_back(const std::string& but_for = "0") {
        old_.start();
        Pg(promoted_->url())
            .exec(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name "
                "LIKE 'outbox%' AND pid NOT IN (" +
                but_for + ")");
    }

  private:
    PostgresServer old_;
    TemporaryFolder folder_{"standby"};
    std::optional<PostgresServer> promoted_;
};

}  // namespace outbox::test
