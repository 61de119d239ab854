#include "brokers/mailbox/sink.h"

#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "backend/backends.h"
#include "core/json_text.h"
#include "mailbox/config.h"
#include "mailbox/errors.h"
#include "mailbox/writer.h"

namespace outbox::mailbox {
namespace {

// What one transaction holds at most; a single larger message still goes.
constexpr std::size_t kMaxBatchMessages = 1'000;
constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 20;

class MailboxSink final : public spi::Sink {
  public:
    explicit MailboxSink(std::unique_ptr<Client> client) : client_(std::move(client)) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }

    Status check() override { return client_->prepare(); }

    Result<std::string> destination() override { return client_->destination(); }

    [[nodiscard]] bool publish(const spi::Record& record) override {
        if (messages_.size() >= kMaxBatchMessages || bytes_ >= kMaxBatchBytes) return false;
        const std::string_view headers = headers_json(record.headers);
        messages_.push_back({record.token,
                             {record.id.data() == nullptr ? std::string_view("") : record.id,
                              record.topic, record.key, headers, record.value}});
        bytes_ += record.id.size() + record.topic.size() + record.key.size() + headers.size() +
                  record.value.size();
        return true;
    }

    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
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

  private:
    struct Message {
        std::uint64_t token = 0;
        Row row;
    };

    std::string_view headers_json(std::span<const spi::HeaderView> headers) {
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

    // Writes a part of the batch. A part that is refused because of a member is halved until the
    // guilty one stands alone; what follows that one on its key is not written.
    void write(std::span<const Message> part, spi::Completions& out) {
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

    std::unique_ptr<Client> client_;
    std::vector<Message> messages_;
    std::size_t bytes_ = 0;
    spi::EventBatch json_;  // holds the headers as JSON
    std::string scratch_;
    std::vector<Row> rows_;
    std::unordered_set<std::string_view> failed_keys_;
    Status down_;
};

Result<std::unique_ptr<Client>> make_client(std::string_view url, int connect_timeout_s) {
    const Result<MailboxConfig> config = parse_mailbox_url(url, connect_timeout_s);
    if (!config.ok()) return config.error();
    const auto database = find_database(config->target);
    if (!database.ok()) return database.error();
    if ((*database)->open_mailbox != nullptr) return (*database)->open_mailbox(*config);
    return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                     std::string((*database)->name) + " holds no mailboxes"};
}

}  // namespace

Result<std::unique_ptr<spi::Sink>> make_mailbox_sink(std::string_view url, int connect_timeout_s) {
    Result<std::unique_ptr<Client>> client = make_client(url, connect_timeout_s);
    if (!client.ok()) return client.error();
    return std::unique_ptr<spi::Sink>(std::make_unique<MailboxSink>(*std::move(client)));
}

Status look_at_mailbox(std::string_view url, int connect_timeout_s) {
    const Result<std::unique_ptr<Client>> client = make_client(url, connect_timeout_s);
    return client.ok() ? (*client)->look() : client.status();
}

}  // namespace outbox::mailbox
