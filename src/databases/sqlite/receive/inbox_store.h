#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "consumer/inbox_store.h"
#include "core/clock.h"
#include "databases/sqlite/receive/session.h"

namespace outbox::consumer {

using sqlite::Run;

/// Appends rows of position, id, topic, key, headers, payload until one reaches `max_bytes`.
void append_messages(const Run& rows, std::size_t max_bytes, spi::EventBatch& out);

/// What a mailbox and a log in an SQLite file have in common.
class SqliteInboxStore final : public InboxStore {
  public:
    /// `more`: the statements of the one. `letters_of`: the mailbox whose dead letters are this
    /// one's, beside those that came from none; empty: none. `clock` outlives this.
    SqliteInboxStore(std::string path, int busy_timeout_s, std::string consumer,
                     std::vector<const char*> more, const core::Clock& clock,
                     std::string letters_of = {});

    [[nodiscard]] sqlite3* connection() const { return session_.connection(); }

    Status connect() override;
    [[nodiscard]] OpenSql opener() const override;
    void disconnect() override { session_.disconnect(); }
    Status check_version() override;
    Status commit() override { return session_.commit(); }
    Status roll_back(ErrorInfo& cause) override;
    // It can end no connection to a file; what it may not write is no outage.
    [[nodiscard]] bool may_be_messages_doing(const ErrorInfo& /*error*/) const override {
        return false;
    }
    Status fetch_retries(std::size_t limit, spi::EventBatch& out) override;
    Result<Taken> take_request(std::string_view message_id) override;
    Status put_request_back(std::string_view message_id, std::int64_t delay_us) override;
    Result<Taken> begin_retry(std::string_view message_id) override;
    Status bury_again(std::string_view message_id, const Burial& burial) override;
    Status report(const MemberStats& stats) override;
    Status retire() override { return fold(member_); }

    /// Enters the message in the open transaction, unless it is to be quarantined.
    Status enter(const spi::EventView& message, Taken& taken);
    /// The same for one given up on: it is entered whatever its time.
    Status enter_buried(const spi::EventView& message);

    /// By which all that the store writes and compares is dated, never by SQLite's own.
    [[nodiscard]] std::int64_t now_us() const { return clock_.wall_us(); }

    [[nodiscard]] SqliteSession& session() { return session_; }
    [[nodiscard]] const std::string& consumer() const { return consumer_; }

  private:
    Status enter_at(const spi::EventView& message, std::int64_t now_us);
    Status fold(std::string_view member);
    Status check_floor(const spi::EventView& message, std::int64_t time_us, std::int64_t now_us);

    SqliteSession session_;
    const std::string consumer_;
    const std::string letters_of_;
    const std::string path_;
    const int busy_timeout_s_;
    const std::string member_;
    std::int64_t longest_wait_us_ = kLongestWaitUs;
    const core::Clock& clock_;
    bool versioned_ = false;  // outbox_migrations is there
};

}  // namespace outbox::consumer
