#include "mailbox/table_sink.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/json_text.h"
#include "mailbox/errors.h"

namespace outbox::mailbox {
namespace {

// Into what an error is about that may be a message's or the destination's.
constexpr int kMaxLooks = 1'000;
constexpr std::chrono::milliseconds kLookFor{1'000};
constexpr std::size_t kMaxGuilty = 1'000;  // more are found anew
constexpr std::size_t kMaxSlow = 10'000;   // likewise
// Between two looks whether what was inserted is recorded.
constexpr std::chrono::milliseconds kAskReady{2};

}  // namespace

TableSink::Time TableSink::machine_now() {
    return std::chrono::steady_clock::now();
}

bool TableSink::publish(const spi::Record& record) {
    if (messages_.size() >= kMaxBatchMessages || bytes_ >= kMaxBatchBytes) return false;
    const bool together = turn_of(record.id) == Turn::kTogether;
    if (together && together_ >= batch_messages_) return false;
    if (together) ++together_;
    const std::string_view headers = headers_json(record.headers);
    messages_.push_back({record.token,
                         {.id = record.id.data() == nullptr ? std::string_view("") : record.id,
                          .topic = record.topic,
                          .key = record.key,
                          .headers = headers,
                          .payload = record.value,
                          .event_type = record.event_type,
                          .tenant = record.tenant_id,
                          .occurred_at_us = record.occurred_at_us}});
    bytes_ += record.id.size() + record.topic.size() + record.key.size() + headers.size() +
              record.value.size();
    return true;
}

void TableSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    if (messages_.empty()) {
        std::this_thread::sleep_for(max_wait);
        return;
    }
    if (!is_ready()) {
        std::this_thread::sleep_for(std::min(max_wait, kAskReady));
        return;
    }
    failed_keys_.clear();
    suspects_.clear();
    looks_ = 0;
    out_of_time_ = false;
    was_ended_ = false;
    const Time begun = now_();
    look_until_ = begun + kLookFor;
    write_until_ = begun + kWriteFor;
    const std::size_t taken_before = out.acknowledged.size();
    const std::size_t failed_before = out.failed.size();
    take_turns();
    const bool last_first = last_first_;
    if (last_first) write_last(out);
    write_singly(those_of(Turn::kAlone), out);
    write_together(out);
    if (!last_first) write_last(out);
    blame(out, failed_before, out.acknowledged.size() > taken_before);
    messages_.clear();
    json_.clear();
    bytes_ = 0;
    together_ = 0;
}

TableSink::Turn TableSink::turn_of(std::string_view id) const {
    if (slow_.empty()) return Turn::kTogether;
    const auto found = slow_.find(std::string(id));
    return found == slow_.end() ? Turn::kTogether : found->second;
}

void TableSink::is_slow(std::string_view id, Turn turn) {
    if (slow_.size() >= kMaxSlow) slow_.clear();
    Turn& known = slow_.try_emplace(std::string(id), turn).first->second;
    known = std::max(known, turn);
}

// Sorts the batch. The messages of a key have the same turn, so that they stay in their order.
void TableSink::take_turns() {
    if (slow_.empty()) return;
    turn_of_key_.clear();
    for (Message& message : messages_) {
        message.turn = turn_of(message.row.id);
        if (message.turn == Turn::kTogether || message.row.key.empty()) continue;
        Turn& turn = turn_of_key_[message.row.key];
        turn = std::max(turn, message.turn);
    }
    for (Message& message : messages_) {
        const auto found = turn_of_key_.find(message.row.key);
        if (found != turn_of_key_.end()) message.turn = found->second;
    }
    std::ranges::stable_sort(messages_, {}, &Message::turn);
}

std::span<const TableSink::Message> TableSink::those_of(Turn turn) const {
    return std::ranges::equal_range(messages_, turn, {}, &Message::turn);
}

void TableSink::write_singly(std::span<const Message> part, spi::Completions& out) {
    for (std::size_t i = 0; i < part.size(); ++i) write(part.subspan(i, 1), out);
}

void TableSink::write_together(spi::Completions& out) {
    const std::span<const Message> part = those_of(Turn::kTogether);
    const Time begun = now_();
    const bool in_time = !out_of_time_ && begun < write_until_;
    write(part, out);
    if (in_time && !part.empty()) fit_batch(now_() - begun, part.size());
}

// They take turns with the others, however long those take.
void TableSink::write_last(spi::Completions& out) {
    const std::span<const Message> part = those_of(Turn::kLast);
    if (part.empty()) return;
    const bool wait = part.size() < messages_.size() && now_() < last_again_;
    last_first_ = !wait && (out_of_time_ || now_() >= write_until_);
    if (wait) {
        for (const Message& message : part) hand_back(message, out);
    } else {
        write_singly(part, out);
    }
}

// Where it cannot be asked the batch fails, as where nothing can be prepared.
bool TableSink::is_ready() {
    down_ = client_->prepare();
    if (!down_.ok()) return true;
    const auto ready = client_->ready();
    if (!ready.ok()) down_ = ready.status();
    return !ready.ok() || *ready;
}

std::string_view TableSink::headers_json(std::span<const spi::HeaderView> headers) {
    if (headers.empty()) return {};
    scratch_.assign(1, '{');
    for (const spi::HeaderView& header : headers) {
        if (scratch_.size() > 1) scratch_ += ',';
        append_json_string(header.name, scratch_);
        scratch_ += ':';
        append_json_string(header.value, scratch_);
    }
    scratch_ += '}';
    return json_.copy(scratch_);
}

// Writes a part of the batch. Once time is up nothing of it is written any more, so that no message
// comes before an earlier one of its key.
void TableSink::write(std::span<const Message> part, spi::Completions& out) {
    std::vector<Message> live;
    live.reserve(part.size());
    out_of_time_ = out_of_time_ || now_() >= write_until_;
    for (const Message& message : part) {
        if (!down_.ok()) {
            out.failed.push_back({message.token, down_.error()});
        } else if (out_of_time_) {
            hand_back(message, out);
        } else if (!message.row.key.empty() && failed_keys_.contains(message.row.key)) {
            out.failed.push_back({.token = message.token,
                                  .error = {ErrorCode::kRecordRefused,
                                            Advice::kRetryDestination,
                                            {},
                                            "an earlier message of its key failed"},
                                  .behind = true});
        } else {
            live.push_back(message);
        }
    }
    if (live.empty()) return;
    rows_.clear();
    for (const Message& message : live) rows_.push_back(message.row);
    const auto taken = client_->insert_some(rows_);
    if (taken.ok()) {
        for (const Message& message : std::span(live).first(*taken)) {
            out.acknowledged.push_back(message.token);
            if (!slow_.empty()) slow_.erase(std::string(message.row.id));
        }
        for (const Message& message : std::span(live).subspan(*taken)) hand_back(message, out);
        out_of_time_ = *taken < live.size();
        return;
    }
    const Status status = taken.status();
    if (took_too_long(status.error())) {
        out_of_time_ = true;
        was_ended_ = true;
        ended(live, status.error(), out);
        return;
    }
    const bool may_be_a_members = may_look_closer(status.error());
    if (!may_be_a_members && !blames_a_message(status.error().advice)) {
        down_ = status;
        write(live, out);
    } else if (live.size() == 1) {
        if (may_be_a_members) {
            suspects_.push_back({out.failed.size(), std::string(live[0].row.id)});
        }
        out.failed.push_back({live[0].token, status.error()});
        if (!live[0].row.key.empty()) failed_keys_.insert(live[0].row.key);
    } else {
        const std::span<const Message> all(live);
        write(all.first(all.size() / 2), out);
        write(all.subspan(all.size() / 2), out);
    }
}

// Not tried: nothing else of this poll is either, so that the order of keys holds.
void TableSink::hand_back(const Message& message, spi::Completions& out) {
    out.failed.push_back({.token = message.token,
                          .error = {ErrorCode::kSinkTimeout,
                                    Advice::kRetryDestination,
                                    {},
                                    "the table takes long; it goes again in a smaller batch"},
                          .behind = true});
}

// One of several may be what took so long, or all of them together. That one alone is at fault is
// not told here, as the database may hang for a while: it fails as in an outage, and the circuit
// finds out while others pass.
void TableSink::ended(std::span<const Message> part, const ErrorInfo& error,
                      spi::Completions& out) {
    for (const Message& message : part) {
        is_slow(message.row.id, part.size() > 1 ? Turn::kAlone : Turn::kLast);
    }
    if (part.size() > 1) {
        for (const Message& message : part) hand_back(message, out);
        return;
    }
    last_again_ = now_() + kBetweenSlow;
    client_->drop();  // another server, another plan
    out.failed.push_back({part[0].token, error});
}

// A table where a row takes long gets what it takes in time, and not the same batch again and
// again.
void TableSink::fit_batch(std::chrono::steady_clock::duration took, std::size_t messages) {
    if (!down_.ok()) return;
    if (was_ended_) {
        batch_messages_ = 1;
    } else if (out_of_time_ || took > kWriteFor) {
        batch_messages_ = std::max<std::size_t>(1, messages / 2);
    } else if (took < kQuick && messages >= batch_messages_) {
        batch_messages_ = std::min(batch_messages_ * 2, kMaxBatchMessages);
    }
}

bool TableSink::may_look_closer(const ErrorInfo& error) {
    return !blames_a_message(error.advice) && client_->may_concern_a_row(error) &&
           ++looks_ <= kMaxLooks && now_() < look_until_;
}

// Nothing that was not looked at counts as an outage while others are taken: it goes again.
void TableSink::blame(spi::Completions& out, std::size_t failed_before, bool others_passed) {
    if (looks_ == 0) return;
    if (guilty_.size() + suspects_.size() > kMaxGuilty) guilty_.clear();
    for (const Suspect& suspect : suspects_) {
        if (others_passed) guilty_.insert(suspect.id);
        if (!guilty_.contains(suspect.id)) continue;
        out.failed[suspect.failed].error.advice = Advice::kRetryEvent;
    }
    if (!others_passed) {
        client_->drop();  // another server, a table created again, another plan
        return;
    }
    for (std::size_t i = failed_before; i < out.failed.size(); ++i) {
        spi::FailedRecord& failed = out.failed[i];
        if (blames_a_message(failed.error.advice) || took_too_long(failed.error)) continue;
        failed.behind = true;
    }
}

}  // namespace outbox::mailbox
