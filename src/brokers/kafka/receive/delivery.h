#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "brokers/kafka/receive/client.h"
#include "consumer/workers/delivery.h"

namespace outbox::consumer::kafka {

/// What tells a record from every other: its id, or where it has none that a database can keep
/// "topic/partition/offset@milliseconds", which holds also where the topic is made anew.
[[nodiscard]] std::string name_of(const Record& record);

/// What it is called in each format: a consumer that is given another one calls it otherwise, and
/// the log is the same.
[[nodiscard]] std::vector<std::string> names_of(const Record& record);

/// A record on its way.
class RecordDelivery final : public Delivery {
  public:
    /// `by_offset`: the offsets of a partition go in their order; otherwise those of a key do, and
    /// a record without key waits for none.
    RecordDelivery(Record record, std::string name, bool by_offset);

    [[nodiscard]] spi::EventView event() const override;
    [[nodiscard]] std::vector<std::string> other_ids() const override;
    [[nodiscard]] std::optional<ErrorInfo> fault() const override;
    [[nodiscard]] std::string lane() const override;
    [[nodiscard]] std::size_t bytes() const override { return record_.bytes() + headers_.size(); }

  private:
    const Record record_;
    const std::string name_;
    const std::string headers_;
    const bool by_offset_;
};

}  // namespace outbox::consumer::kafka
