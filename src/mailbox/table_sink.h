#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <outbox/spi/event_batch.h>
#include <outbox/spi/sink.h>

#include "mailbox/writer.h"

namespace outbox::mailbox {

/// A sink whose records become rows of a table: a batch is written in one go. One that is refused
/// because of a member is halved until the guilty one stands alone; what follows that one on its
/// key is not written. Where an error may be a member's or the destination's, what became of the
/// others tells: a member is at fault that fails alone while others are taken, then or earlier.
/// A batch that takes long is told as far as it came; the rest goes again, in smaller ones. What
/// the server ended a statement for goes alone, one after the other, until it is in; what it ended
/// alone counts as an outage, and goes behind the others and not at once, so that the circuit
/// finds out whose fault it is.
class TableSink final : public spi::Sink {
  public:
    using Time = std::chrono::steady_clock::time_point;
    using Now = std::function<Time()>;

    /// `capabilities` outlive it.
    TableSink(std::unique_ptr<Client> client, const spi::SinkCapabilities& capabilities,
              Now now = machine_now)
        : client_(std::move(client)), capabilities_(capabilities), now_(std::move(now)) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    Status check() override { return client_->prepare(); }
    Result<std::string> destination() override { return client_->destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    /// Blocks up to `kWriteFor` and an insert, beside what `Client::prepare` takes.
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;
    void all_recorded() override { client_->all_recorded(); }

    [[nodiscard]] bool empty() const { return messages_.empty(); }

    /// Longest time in which inserts of a batch begin.
    static constexpr std::chrono::seconds kWriteFor{5};
    /// What takes less leaves room for a batch twice as large.
    static constexpr std::chrono::milliseconds kQuick{3'500};
    /// Others have so much time between two messages that the server ends alone.
    static constexpr std::chrono::seconds kBetweenSlow{2};
    /// What one transaction holds at most; a single larger message still goes.
    static constexpr std::size_t kMaxBatchMessages = 1'000;
    static constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 20;

  private:
    static Time machine_now();

    // With whom a message is written.
    enum class Turn : std::uint8_t {
        kTogether,
        kAlone,  // was in a statement that the server ended
        kLast    // which held nothing else
    };
    struct Message {
        std::uint64_t token = 0;
        Row row;
        Turn turn = Turn::kTogether;
    };

    [[nodiscard]] bool is_ready();
    std::string_view headers_json(std::span<const spi::HeaderView> headers);
    [[nodiscard]] Turn turn_of(std::string_view id) const;
    void is_slow(std::string_view id, Turn turn);
    void take_turns();
    [[nodiscard]] std::span<const Message> those_of(Turn turn) const;
    void write_together(spi::Completions& out);
    void write_last(spi::Completions& out);
    void write_singly(std::span<const Message> part, spi::Completions& out);
    void write(std::span<const Message> part, spi::Completions& out);
    void ended(std::span<const Message> part, const ErrorInfo& error, spi::Completions& out);
    static void hand_back(const Message& message, spi::Completions& out);
    void fit_batch(std::chrono::steady_clock::duration took, std::size_t messages);
    [[nodiscard]] bool may_look_closer(const ErrorInfo& error);
    void blame(spi::Completions& out, std::size_t failed_before, bool others_passed);

    std::unique_ptr<Client> client_;
    const spi::SinkCapabilities& capabilities_;
    Now now_;
    std::size_t batch_messages_ = kMaxBatchMessages;  // by how long the last ones took
    std::vector<Message> messages_;
    std::size_t bytes_ = 0;
    std::size_t together_ = 0;  // of these
    spi::EventBatch json_;      // holds the headers as JSON
    std::string scratch_;
    std::vector<Row> rows_;
    std::unordered_set<std::string_view> failed_keys_;
    Status down_;
    Time write_until_{};
    bool out_of_time_ = false;                    // the rest of this batch goes again
    bool was_ended_ = false;                      // by the server, in this batch
    std::unordered_map<std::string, Turn> slow_;  // ids that do not go together with others
    std::unordered_map<std::string_view, Turn> turn_of_key_;
    Time last_again_{};        // those of `kLast`, while there are others
    bool last_first_ = false;  // those of `kLast` found no time in the batch before
    int looks_ = 0;            // of this batch, into what an error is about
    Time look_until_{};
    struct Suspect {
        std::size_t failed;  // in the completions
        std::string id;
    };
    std::vector<Suspect> suspects_;
    std::unordered_set<std::string> guilty_;  // ids that failed alone while others were taken
};

}  // namespace outbox::mailbox
