#pragma once

#include <chrono>
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
/// key is not written. Where an error may be a member's or the destination's, what became of the
/// others tells: a member is at fault that fails alone while others are taken, then or earlier.
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
    void all_recorded() override { client_->all_recorded(); }

    [[nodiscard]] bool empty() const { return messages_.empty(); }

  private:
    struct Message {
        std::uint64_t token = 0;
        Row row;
    };

    [[nodiscard]] bool is_ready();
    std::string_view headers_json(std::span<const spi::HeaderView> headers);
    void write(std::span<const Message> part, spi::Completions& out);
    [[nodiscard]] bool may_look_closer(const ErrorInfo& error);
    void blame(spi::Completions& out, std::size_t failed_before, bool others_passed);

    std::unique_ptr<Client> client_;
    const spi::SinkCapabilities& capabilities_;
    std::vector<Message> messages_;
    std::size_t bytes_ = 0;
    spi::EventBatch json_;  // holds the headers as JSON
    std::string scratch_;
    std::vector<Row> rows_;
    std::unordered_set<std::string_view> failed_keys_;
    Status down_;
    int looks_ = 0;  // of this batch, into what an error is about
    std::chrono::steady_clock::time_point look_until_{};
    struct Suspect {
        std::size_t failed;  // in the completions
        std::string id;
    };
    std::vector<Suspect> suspects_;
    std::unordered_set<std::string> guilty_;  // ids that failed alone while others were taken
};

}  // namespace outbox::mailbox
