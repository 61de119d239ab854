#include "databases/postgres/settled.h"

#include <algorithm>
#include <charconv>

namespace outbox::postgres {
namespace {

// "xmin:xmax:xid,xid,…": all below xmin have ended, none from xmax on had begun.
struct Snapshot {
    std::uint64_t oldest = 0;
    std::uint64_t end = 0;
    std::vector<std::uint32_t> open;
};

std::uint64_t take_number(std::string_view& text) {
    std::uint64_t number = 0;
    const char* last = text.data() + text.size();
    const char* end = std::from_chars(text.data(), last, number).ptr;
    const auto used = static_cast<std::size_t>(end - text.data()) + 1;  // with what divides
    text.remove_prefix(std::min(text.size(), used));
    return number;
}

Snapshot parse(std::string_view text) {
    Snapshot snapshot;
    snapshot.oldest = take_number(text);
    snapshot.end = take_number(text);
    while (!text.empty()) {
        snapshot.open.push_back(static_cast<std::uint32_t>(take_number(text)));
    }
    return snapshot;
}

}  // namespace

void Settled::looked(std::string_view snapshot, std::int64_t last, std::int64_t now_us) {
    Snapshot now = parse(snapshot);
    // What was open when `waiting_` was seen has ended before this look, which saw what it left.
    if (waiting_ && (waiting_->none_writes || now.oldest >= waiting_->end)) {
        settled_ = waiting_->last + 1;
        waiting_.reset();
    }
    if (!waiting_) waiting_ = Look{now.end, last, std::move(now.open), now_us + kLongUs, false};
    from_ = std::min(settled_, last + 1);
}

const std::vector<std::uint32_t>* Settled::long_open(std::int64_t now_us) const {
    if (!waiting_ || waiting_->none_writes || now_us < waiting_->ask_at_us) return nullptr;
    return &waiting_->open;
}

void Settled::answered(bool any_writes, std::int64_t now_us) {
    waiting_->none_writes = !any_writes;
    waiting_->ask_at_us = now_us + kLongUs;
}

}  // namespace outbox::postgres
