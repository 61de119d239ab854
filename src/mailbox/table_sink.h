#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <outbox/spi/event_batch.h>
#include <outbox/spi/sink.h>

#include "mailbox/writer.h"

namespace outbox::mailbox {

/// A sink whose records become rows of a table: a batch is written in one go. One that is refused
/// because of a member is halved until the guilty one stands alone; what follows that one on its
/// key is not written.
class TableSink final : public spi::Sink {
  public:
    /// `capabilities` outlive it.
    TableSink(std::unique_ptr<Client> client, const spi::SinkCapabilities& capabilities)
        : client_(std::move(client)), capabilities_(capabilities) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    Status check() override { return client_->prepare(); }
    Result<std::string> destination() override { return client_->destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

    [[nodiscard]] bool empty() const { return messages_.empty(); }

  private:
    struct Message {
        std::uint64_t token = 0;
        Row row;
    };

    std::string_view headers_json(std::span<const spi::HeaderView> headers);
    void write(std::span<const Message> part, spi::Completions& out);

    std::unique_ptr<Client> client_;
    const spi::SinkCapabilities& capabilities_;
    std::vector<Message> messages_;
    std::size_t bytes_ = 0;
    spi::EventBatch json_;  // holds the headers as JSON
    std::string scratch_;
    std::vector<Row> rows_;
    std::unordered_set<std::string_view> failed_keys_;
    Status down_;
};

}  // namespace outbox::mailbox
