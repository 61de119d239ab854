#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "mailbox/config.h"

namespace outbox::mailbox {

/// One message as it is stored. Null `data()` is NULL.
struct Row {
    std::string_view id;
    std::string_view topic;
    std::string_view key;
    std::string_view headers;  ///< A JSON object of strings.
    std::string_view payload;

    // Of a mailbox only the headers say these.
    std::string_view event_type = {};
    std::string_view tenant = {};
    std::int64_t occurred_at_us = 0;  ///< 0: not known.
};

/// A connection to the database that holds the mailbox. One thread uses it at a time.
class Client {
  public:
    Client() = default;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    virtual ~Client() = default;

    /// Connects if it must, creates the table if it is missing and may be created. Blocks up to
    /// the connect timeout. Errors: retry_destination with the remedy.
    virtual Status prepare() = 0;

    /// Whether `prepare` would succeed, as far as looking tells. Connects and changes nothing; a
    /// database file that is not there is an error, as its path may be a wrong one.
    virtual Status look() = 0;

    /// What the database and the mailbox in it call themselves. Connects as `prepare` does.
    virtual Result<std::string> destination() = 0;

    /// Whether rows may be inserted now; false: what comes again of those that were inserted and
    /// not yet recorded (`all_recorded`) would become something else than it was. Behind `prepare`.
    virtual Result<bool> ready() { return true; }
    /// As `spi::Sink::all_recorded` says, of what was inserted.
    virtual void all_recorded() {}

    /// Adds the rows in their order, in one transaction that is durable on return; ids that the
    /// mailbox holds already are left out. All or none. Blocks up to `kRequestTimeoutMs`. Errors
    /// as in errors.h; after one that blames no message, and may concern none, `prepare` starts
    /// afresh.
    virtual Status insert(std::span<const Row> rows) = 0;
    /// As `insert`, but may leave out the last rows, or all, where these would take too long: how
    /// many are in, durably. The rest is to come again, in its order.
    virtual Result<std::size_t> insert_some(std::span<const Row> rows) {
        if (Status status = insert(rows); !status.ok()) return status;
        return rows.size();
    }

    /// Whether an error of `insert` that blames no message may have come of one of them after all,
    /// by a trigger or a policy of the owner's that looks at each row.
    [[nodiscard]] virtual bool may_concern_a_row(const ErrorInfo& /*error*/) const { return false; }
    /// Lets the next `prepare` start afresh. Does not block.
    virtual void drop() {}
};

inline constexpr int kRequestTimeoutMs = 10'000;

}  // namespace outbox::mailbox
