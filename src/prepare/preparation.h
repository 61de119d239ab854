#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

namespace outbox::prepare {

/// What a step has made of a record.
struct Prepared {
    /// What it changed in the record points into these, which live as long as the record is under
    /// way.
    std::string bytes;
    /// What is away, as messages name it, where that is less than all that the step needs.
    std::string part;
};

/// One thing that is done for records before their sink has them. Used by one thread.
class Preparation {
  public:
    Preparation() = default;
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;
    virtual ~Preparation() = default;

    /// What it needs for that, as messages name it: "object store s3://bucket/prefix". Where it is
    /// away the records that need it wait, and no others.
    [[nodiscard]] virtual const std::string& needs() const = 0;
    /// Whether there is anything to do for the record. Does not wait.
    [[nodiscard]] virtual bool concerns(const spi::Record& record) const = 0;
    /// Does it where that needs nothing that could be away; nothing: `prepare` has to. Does not
    /// wait.
    virtual std::optional<Status> prepare_at_once(spi::Record& /*record*/, Prepared& /*out*/) {
        return std::nullopt;
    }
    /// Whether what it would ask for may well not be there: then only one record at a time waits
    /// for that, so that those whose answer is known or likely do not stand behind them. Does not
    /// wait.
    [[nodiscard]] virtual bool is_doubtful(const spi::Record& /*record*/) { return false; }
    /// Does it. May block for its own request timeouts; ends within 100 ms of `stop` where it waits
    /// for a server.
    /// Errors: retry_destination where what it needs is away; others are the record's.
    virtual Status prepare(spi::Record& record, Prepared& out, const std::stop_token& stop) = 0;
};

using Preparations = std::vector<std::unique_ptr<Preparation>>;

}  // namespace outbox::prepare
