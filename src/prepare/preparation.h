#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

namespace outbox::prepare {

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
    /// Does it. What it changes in the record points into `bytes`, which lives as long as the
    /// record is under way. May block for its own request timeouts; ends within 100 ms of `stop`
    /// where it waits for a server.
    /// Errors: retry_destination where what it needs is away; others are the record's.
    virtual Status prepare(spi::Record& record, std::string& bytes,
                           const std::stop_token& stop) = 0;
};

using Preparations = std::vector<std::unique_ptr<Preparation>>;

}  // namespace outbox::prepare
