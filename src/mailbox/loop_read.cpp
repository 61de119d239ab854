#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "consumer/cloud_events.h"
#include "mailbox/loop.h"

// Which messages are read next: fresh ones, and failing ones that are due.
namespace outbox::consumer {
namespace {

constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 20;

}  // namespace

// With too many failing messages only those that are due are read, so that none is added.
Status MailboxLoop::read(Look& look) {
    const bool only_due = failing_.size() >= options_.max_failing_keys;
    const std::int64_t now = clock_.boot_us();
    if (only_due) owed_us_ = 0;
    const std::int64_t due_until =
        due_until_us(now, only_due ? options_.batch_size : due_at_once());
    Choice choice;
    std::vector<std::int64_t> asked;
    for (const auto& [name, failing] : failing_) {
        if (failing.due_us <= due_until) {
            asked.push_back(failing.position);
        } else if (failing.keyed) {
            choice.without_keys.push_back(name.substr(1));
        } else {
            choice.without_positions.push_back(failing.position);
        }
    }
    if (only_due) choice.only = asked;
    look.chose = only_due || !choice.without_keys.empty() || !choice.without_positions.empty();
    if (look.chose || now >= next_whole_look_us_) from_ = 0;
    batch_.clear();
    const FetchLimits limits{options_.batch_size, kMaxBatchBytes};
    Status status;
    if (from_ > 0) {
        choice.from = from_;
        status = store_->fetch(choice, limits, batch_);
        if (status.ok() && batch_.empty()) from_ = choice.from = 0;
    }
    if (from_ == 0) {
        next_whole_look_us_ = now + kKeepUs;
        status = store_->fetch(choice, limits, batch_);
    }
    const bool all_read =
        batch_.bytes() < kMaxBatchBytes && (only_due || batch_.size() < options_.batch_size);
    look.complete = all_read && !only_due && from_ == 0;
    if (status.ok()) forget_missing(asked, all_read);
    for (spi::EventView& event : batch_.events()) read_as(options_.format, event);
    return status;
}

// What its format says, in place of what is stored. The row keeps its id, which is the mailbox's.
void MailboxLoop::read_as(MessageFormat format, spi::EventView& event) {
    const MessageReading reading = read_message(format, event.id, event.headers, event.payload);
    if (!reading.fault.empty()) {
        event.defect = batch_.copy("the message " + std::string(event.id) + " " + reading.fault);
    }
    if (!reading.event) return;
    event.headers = batch_.copy(reading.event->headers);
    if (!reading.event->in_value) return;
    const auto& payload = reading.event->payload;
    event.payload = payload ? batch_.copy(*payload) : std::string_view();
}

// How many failing messages are tried before fresh ones: less than a batch, and for about as long
// as letters are.
std::size_t MailboxLoop::due_at_once() const {
    if (owed_us_ > 0) return 0;
    const std::int64_t fit = kMostLettersUs / std::max<std::int64_t>(1, failing_us_);
    return std::clamp<std::size_t>(static_cast<std::size_t>(fit), 1, options_.batch_size / 2 + 1);
}

// When the last one of the `most` that are due for the longest became so.
std::int64_t MailboxLoop::due_until_us(std::int64_t now_us, std::size_t most) const {
    std::vector<std::int64_t> due;
    for (const auto& [name, failing] : failing_) {
        if (failing.due_us <= now_us) due.push_back(failing.due_us);
    }
    if (most == 0) return std::numeric_limits<std::int64_t>::min();
    if (due.size() <= most) return now_us;
    const auto last = due.begin() + static_cast<std::ptrdiff_t>(most - 1);
    std::nth_element(due.begin(), last, due.end());
    return *last;
}

// Someone else may have removed the row of a message that waited: then it was asked for and is not
// among what was read.
void MailboxLoop::forget_missing(const std::vector<std::int64_t>& asked, bool all_read) {
    if (asked.empty()) return;
    std::unordered_set<std::int64_t> missing(asked.begin(), asked.end());
    std::int64_t last = 0;
    for (const spi::EventView& event : batch_.events()) {
        missing.erase(event.position);
        last = event.position;
    }
    std::erase_if(failing_, [&](const auto& entry) {
        const std::int64_t position = entry.second.position;
        return missing.contains(position) && (all_read || position <= last);
    });
}

}  // namespace outbox::consumer
