#include "databases/postgres/stream/reader.h"

#include <utility>

#include "databases/postgres/stream/check.h"

namespace outbox::postgres {
namespace {

constexpr std::chrono::seconds kLookEvery{5};
// A stream that stays behind by more, for so long, is slower than the writers: the next one begins
// where they are.
constexpr std::int64_t kMaxLagBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxLagUs = 3'000'000;

std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

StreamReader::StreamReader(const PostgresSourceConfig& config, const Table& table,
                           Identity& identity, StreamHub& hub, spi::PositionSet finished)
    : mode_(config.mode),
      identity_(identity),
      table_(config, table, identity, std::move(finished)),
      hub_(hub),
      subscription_(hub),
      endings_(hub.endings()) {
    tell("polling", "catching up");
}

Status StreamReader::read(const spi::ReadLimits& limits, spi::EventBatch& out) {
    if (on_stream()) {
        // Positions that begin anew would pass for rows that were seen.
        if (Status status = table_.look_at_table(); !status.ok()) return status;
        if (Status status = look_at_stream(); !status.ok()) return status;
    }
    // First, so that a stream that fills each batch cannot keep the holes open.
    if (state_.table_due(now_us(), table_.has_holes(), subscription_.stalled())) {
        if (Status status = read_table(limits, out); !status.ok()) return status;
    }
    if (!on_stream()) return {};
    const std::size_t from_table = out.size();
    read_stream(limits, out);
    identity_.returned(out, from_table);
    // A stream that ended gives way to the table at once.
    return !on_stream() && out.empty() ? read_table(limits, out) : Status();
}

Status StreamReader::read_table(const spi::ReadLimits& limits, spi::EventBatch& out) {
    bool joins = on_stream();
    if (!joins) {
        const auto offer = subscription_.offer();
        if (offer && !table_.has_read_ahead()) {
            join(*offer, limits, out);
            return {};
        }
        joins = offer.has_value();
    }
    table_.may_read_ahead(!joins);
    if (Status status = table_.read(limits, out); !status.ok()) return status;
    state_.table_read(now_us(), table_.at_end());
    if (state_.wants_stream(now_us())) ask_for_stream();
    if (!on_stream() && hub_.endings() != endings_) {
        endings_ = hub_.endings();
        tell("polling", hub_.reason());
    }
    return {};
}

void StreamReader::ask_for_stream() {
    if (mode_ == Mode::kStream || hub_.pays()) {
        subscription_.want();
    } else {
        tell("polling", "mode is auto, which polls for one route or two");
    }
}

// An offer may have run out, and a database that is away shows with the next read.
void StreamReader::join(const StreamHub::Offer& offer, const spi::ReadLimits& limits,
                        spi::EventBatch& out) {
    bool complete = false;
    Status status;
    if (table_.may_advance()) status = table_.read_snapshot(offer.snapshot, limits, out, complete);
    if (subscription_.answer(offer, status.ok() && complete)) {
        queue_.clear();
        stream_table_ = offer.table;
        decoder_.emplace(*stream_table_);
        looked_ = std::chrono::steady_clock::now();
        state_.joined(now_us());
        behind_since_us_ = 0;
        tell("stream", {});
    } else if (status.ok() && !complete) {
        state_.left(now_us(), Why::kBehind);
        tell("polling", "more was written while the route joined than it takes at once");
    } else {
        state_.left(now_us(), Why::kLost);
    }
}

// A publication that no longer shows the table ends a stream without a word.
Status StreamReader::look_at_stream() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kLookEvery) return {};
    looked_ = now;
    const Result<Connection*> connection = table_.connection();
    if (!connection.ok()) return connection.status();
    Result<std::string> why = look_at_running_stream(**connection, table_.table(), *stream_table_);
    if (!why.ok()) return why.status();
    if (!why->empty()) leave(Why::kLost, std::move(*why));
    return {};
}

void StreamReader::read_stream(const spi::ReadLimits& limits, spi::EventBatch& out) {
    const Lsn end = identity_.log_end();
    const Lsn received = hub_.received();
    lag_bytes_ = end > received ? static_cast<std::int64_t>(end - received) : 0;
    if (lag_bytes_ <= kMaxLagBytes) {
        behind_since_us_ = 0;
    } else if (behind_since_us_ == 0) {
        behind_since_us_ = now_us();
    } else if (now_us() - behind_since_us_ >= kMaxLagUs) {
        leave(Why::kBehind, "the stream is slower than the writers, " +
                                std::to_string(lag_bytes_ >> 20) + " MiB behind");
        return;
    }
    while (out.size() < limits.max_events && out.bytes() < limits.max_bytes) {
        if (queue_.empty()) {
            switch (subscription_.take(queue_)) {
                case StreamHub::State::kOn:
                    break;
                case StreamHub::State::kBehind:
                    leave(Why::kBehind, "the route is behind");
                    return;
                default:
                    endings_ = hub_.endings();
                    leave(Why::kLost, hub_.reason());
                    return;
            }
            if (queue_.empty()) return;
        }
        if (Status status = take_message(queue_.front(), out); !status.ok()) {
            // What cannot be decoded would come again: the wait for the next stream grows.
            leave(Why::kBehind, describe(status.error()));
            return;
        }
        queue_.pop();
        if (!table_.may_advance()) {
            leave(Why::kBehind, "too many positions wait for transactions that are open");
            return;
        }
    }
}

Status StreamReader::take_message(std::string_view bytes, spi::EventBatch& out) {
    if (Status status = pgoutput::parse_message(bytes, message_); !status.ok()) return status;
    const std::size_t before = out.size();
    const Result<RowDecoder::Row> row = decoder_->decode(message_, out);
    if (!row.ok()) return row.status();
    if (*row == RowDecoder::Row::kNone) return {};
    const spi::Position position = decoder_->position();
    const Result<bool> is_new = table_.saw(position);
    if (!is_new.ok() || !*is_new) {
        out.events().resize(before);
        return is_new.status();
    } else if (*row == RowDecoder::Row::kOtherTenant) {
        out.closed.push_back({position, position});
    }
    return {};
}

void StreamReader::leave(Why why, std::string reason) {
    subscription_.leave();
    endings_ = hub_.endings();
    queue_ = StreamQueue();
    lag_bytes_ = 0;
    state_.left(now_us(), why);
    tell("polling", std::move(reason));
}

spi::Reader::Waited StreamReader::wait(std::chrono::milliseconds max_wait) {
    if (!on_stream()) return Waited::kCannot;
    if (!queue_.empty() || subscription_.wait(max_wait)) return Waited::kReady;
    return Waited::kTime;
}

void StreamReader::tell(std::string_view path, std::string reason) {
    if (path_.path == path && path_.reason == reason) return;
    path_ = {std::string(path), std::move(reason)};
    path_is_new_ = true;
}

std::optional<spi::ReadPath> StreamReader::new_path() {
    if (!std::exchange(path_is_new_, false)) return std::nullopt;
    return path_;
}

}  // namespace outbox::postgres
