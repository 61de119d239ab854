#pragma once

#include <libpq-fe.h>
#include <string>
#include <vector>

#include "consumer/inbox_store.h"
#include "core/clock.h"
#include "databases/postgres/receive/session.h"

namespace outbox::consumer {

/// Appends rows of position, id, topic, key, headers, payload, until they reach `max_bytes`.
void append_messages(const Rows& rows, std::size_t max_bytes, spi::EventBatch& out);

/// What a mailbox and a log in PostgreSQL have in common.
class LibpqInboxStore final : public InboxStore {
  public:
    /// What one that works in its session adds.
    struct Extra {
        std::vector<Prepared> statements;
        std::vector<LibpqSession::Right> rights;  ///< What it does with tables of its own.
        /// The mailbox whose dead letters are this one's, beside those that came from none; empty:
        /// none.
        std::string letters_of = {};
        const char* set_up = nullptr;  ///< SQL for each new session.
    };
    /// `clock` outlives this.
    LibpqInboxStore(std::string url, int connect_timeout_s, std::string consumer, Extra extra,
                    const core::Clock& clock);

    [[nodiscard]] PGconn* connection() const { return session_.connection(); }

    Status connect() override;
    [[nodiscard]] OpenSql opener() const override;
    void disconnect() override { session_.disconnect(); }
    Status check_version() override;
    Status commit() override { return session_.commit(); }
    Status roll_back(ErrorInfo& cause) override { return session_.roll_back(cause); }
    [[nodiscard]] bool may_be_messages_doing(const ErrorInfo& error) const override {
        return error.code != ErrorCode::kDiskFull;
    }
    Status fetch_retries(std::size_t limit, spi::EventBatch& out) override;
    Result<Taken> take_request(std::string_view message_id) override;
    Status put_request_back(std::string_view message_id, std::int64_t delay_us) override;
    Result<Taken> begin_retry(std::string_view message_id) override;
    Status bury_again(std::string_view message_id, const Burial& burial) override;
    Status report(const MemberStats& stats) override;
    Status retire() override { return fold(member_); }

    /// Begins a transaction with one statement.
    Result<Rows> begin_with(const char* statement, const Params& params, const char* doing);

    /// In the transaction that is open, which found nothing but repeats: `kWaitAsAWrite`. After an
    /// error none is open.
    Status wait_as_a_write(const char* doing);

    /// The database's clock, which decides what may have been pruned: this machine's may be wrong.
    [[nodiscard]] std::int64_t now_us() const;

    [[nodiscard]] LibpqSession& session() { return session_; }
    [[nodiscard]] const std::string& consumer() const { return consumer_; }

  private:
    Status fold(std::string_view member);

    LibpqSession session_;
    const std::string consumer_;
    const std::string letters_of_;
    const char* const set_up_;
    const std::string member_;
    std::int64_t longest_wait_us_ = kLongestWaitUs;
    bool versioned_ = false;           // outbox_migrations is there and may be read
    const core::Clock& clock_;         // goes on while the machine sleeps, as the database's does
    std::int64_t clock_ahead_us_ = 0;  // the database's clock before `boot_us`
};

}  // namespace outbox::consumer
