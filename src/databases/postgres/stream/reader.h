#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <outbox/spi/source.h>

#include "core/stream_state.h"
#include "databases/postgres/source/position_reader.h"
#include "databases/postgres/stream/hub.h"
#include "databases/postgres/stream/row_decoder.h"

namespace outbox::postgres {

/// Reads the table while it is behind, and the stream of the log when it has caught up. One mark
/// remembers what was returned by either. The order of a key is kept where they meet: a read of
/// the table shows with each event all that its transaction could see, the snapshot of the join
/// shows exactly what the stream leaves out, and the stream comes in the order of the commits.
class StreamReader final : public spi::Reader {
  public:
    /// The hub is the source's and serves all its readers. With mode auto the stream is asked for
    /// only where that `pays`.
    StreamReader(const PostgresSourceConfig& config, const Table& table, Identity& identity,
                 StreamHub& hub, spi::PositionSet finished);

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override;
    Status fetch(std::span<const spi::Position> positions, spi::EventBatch& out) override {
        return table_.fetch(positions, out);
    }
    void forget(std::span<const spi::Position> positions) override { table_.forget(positions); }
    Waited wait(std::chrono::milliseconds max_wait) override;
    [[nodiscard]] std::optional<spi::ReadPath> new_path() override;
    [[nodiscard]] std::int64_t lag_bytes() const override { return lag_bytes_; }
    [[nodiscard]] std::int64_t kept_bytes() const override { return hub_.kept_bytes(); }

  private:
    using Why = core::StreamState::Why;

    Status read_table(const spi::ReadLimits& limits, spi::EventBatch& out);
    void ask_for_stream();
    [[nodiscard]] bool on_stream() const {
        return state_.path() == core::StreamState::Path::kStream;
    }
    void join(const StreamHub::Offer& offer, const spi::ReadLimits& limits, spi::EventBatch& out);
    void read_stream(const spi::ReadLimits& limits, spi::EventBatch& out);
    Status take_message(std::string_view bytes, spi::EventBatch& out);
    Status look_at_stream();
    void leave(Why why, std::string reason);
    void tell(std::string_view path, std::string reason);

    const Mode mode_;
    Identity& identity_;
    PositionReader table_;
    StreamHub& hub_;
    StreamHub::Subscription subscription_;
    core::StreamState state_;
    StreamQueue queue_;  // taken from the hub, and not yet returned
    pgoutput::Message message_;
    std::shared_ptr<const StreamTable> stream_table_;  // shared with the other routes, unchanged
    std::chrono::steady_clock::time_point looked_{};   // at the publication
    std::optional<RowDecoder> decoder_;                // of the stream that was joined
    std::uint64_t endings_;                            // of the stream that have been told
    std::int64_t lag_bytes_ = 0;
    std::int64_t behind_since_us_ = 0;  // since when it was seen to be over the limit; 0: it is not
    spi::ReadPath path_;
    bool path_is_new_ = false;
};

}  // namespace outbox::postgres
