#include "databases/postgres/stream/visibility.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace outbox::postgres {
namespace {

constexpr const char* kSnapshot = "outbox_snapshot";

// Takes a number and what must stand behind it, unless it is the end of the text.
std::optional<std::uint64_t> take_number(std::string_view& text, char separator) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return number;
    if (text.front() != separator) return std::nullopt;
    text.remove_prefix(1);
    return number;
}

}  // namespace

std::optional<SnapshotBounds> SnapshotBounds::parse(std::string_view text) {
    SnapshotBounds out;
    const auto xmin = take_number(text, ':');
    const auto xmax = take_number(text, ':');
    if (!xmin || !xmax) return std::nullopt;
    out.xmin = *xmin;
    out.xmax = *xmax;
    while (!text.empty()) {
        const auto xid = take_number(text, ',');
        if (!xid) return std::nullopt;
        out.running.push_back(*xid);
    }
    return out;
}

bool SnapshotBounds::shows(std::uint32_t xid) const {
    const auto ahead = static_cast<std::int32_t>(xid - static_cast<std::uint32_t>(xmax));
    const std::uint64_t full = xmax + static_cast<std::uint64_t>(std::int64_t{ahead});
    return full < xmax && !std::binary_search(running.begin(), running.end(), full);
}

Result<bool> Visibility::all_visible(std::span<const std::uint32_t> xids) {
    if (!prepared_) {
        if (Status status = connection_.prepare(
                kSnapshot,
                "SELECT pg_current_snapshot()::text, " + life_sql_ + ", " + published_sql_, {});
            !status.ok()) {
            return status;
        }
        prepared_ = true;
    }
    const Result<Rows> rows = connection_.query_prepared(kSnapshot, {});
    if (!rows.ok()) return rows.status();
    life_ = rows->string(0, 1);
    published_ = rows->string(0, 2);
    const auto snapshot = SnapshotBounds::parse(rows->text(0, 0));
    if (!snapshot) {
        return ErrorInfo{ErrorCode::kInternal,
                         Advice::kRetryDestination,
                         {},
                         "pg_current_snapshot() says " + std::string(rows->text(0, 0))};
    }
    return std::all_of(xids.begin(), xids.end(),
                       [&](std::uint32_t xid) { return snapshot->shows(xid); });
}

}  // namespace outbox::postgres
