#include "mailbox/table_sink.h"

#include <thread>
#include <utility>

#include "core/json_text.h"
#include "mailbox/errors.h"

namespace outbox::mailbox {
namespace {

// What one transaction holds at most; a single larger message still goes.
constexpr std::size_t kMaxBatchMessages = 1'000;
constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 20;

}  // namespace

bool TableSink::publish(const spi::Record& record) {
    if (messages_.size() >= kMaxBatchMessages || bytes_ >= kMaxBatchBytes) return false;
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
    down_ = client_->prepare();
    failed_keys_.clear();
    write(messages_, out);
    messages_.clear();
    json_.clear();
    bytes_ = 0;
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

// Writes a part of the batch.
void TableSink::write(std::span<const Message> part, spi::Completions& out) {
    std::vector<Message> live;
    live.reserve(part.size());
    for (const Message& message : part) {
        if (!down_.ok()) {
            out.failed.push_back({message.token, down_.error()});
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
    const Status status = client_->insert(rows_);
    if (status.ok()) {
        for (const Message& message : live) out.acknowledged.push_back(message.token);
    } else if (!blames_a_message(status.error().advice)) {
        down_ = status;
        write(live, out);
    } else if (live.size() == 1) {
        out.failed.push_back({live[0].token, status.error()});
        if (!live[0].row.key.empty()) failed_keys_.insert(live[0].row.key);
    } else {
        const std::span<const Message> all(live);
        write(all.first(all.size() / 2), out);
        write(all.subspan(all.size() / 2), out);
    }
}

}  // namespace outbox::mailbox
