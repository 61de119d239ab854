#include "brokers/kafka/receive/client.h"

#include <array>
#include <cstring>
#include <librdkafka/rdkafka.h>
#include <nlohmann/json.hpp>

#include "brokers/kafka/quiet.h"
#include "brokers/kafka/refusal.h"
#include "consumer/debezium.h"
#include "core/url.h"

namespace outbox::consumer::kafka {
namespace {

constexpr std::size_t kErrorBytes = 512;
constexpr int kCommitTimeoutMs = 5'000;
constexpr int kCloseLookMs = 50;
constexpr std::chrono::seconds kCloseWithin{10};

struct DestroyList {
    void operator()(rd_kafka_topic_partition_list_t* list) const {
        rd_kafka_topic_partition_list_destroy(list);
    }
};
using List = std::unique_ptr<rd_kafka_topic_partition_list_t, DestroyList>;

std::vector<TopicPartition> partitions_of(const rd_kafka_topic_partition_list_t* list) {
    std::vector<TopicPartition> out;
    for (int i = 0; i < list->cnt; ++i) {
        out.push_back({list->elems[i].topic, list->elems[i].partition});
    }
    return out;
}

List list_of(const TopicPartition& where) {
    List list(rd_kafka_topic_partition_list_new(1));
    rd_kafka_topic_partition_list_add(list.get(), where.topic.c_str(), where.partition);
    return list;
}

std::string_view view(const void* data, std::size_t size) {
    if (data == nullptr) return {};
    return {static_cast<const char*>(data), size};
}

bool is_secret(const std::string& name) {
    constexpr std::array<std::string_view, 4> kParts{"key.pem", "sasl.jaas", "oauthbearer.config",
                                                     "assertion"};
    add_secret_options(kParts);
    return is_secret_option(name);
}

// Looking up the log's beginning may be answered late, and librdkafka 2.0 goes on there then,
// although it was told another offset meanwhile.
std::int64_t offset_of(const Start& start) {
    return start.hold ? 0 : start.offset;
}

}  // namespace

void Record::Destroy::operator()(rd_kafka_message_s* message) const {
    rd_kafka_message_destroy(message);
}

std::string_view Record::topic() const {
    return rd_kafka_topic_name(message_->rkt);
}
int Record::partition() const {
    return message_->partition;
}
std::int64_t Record::offset() const {
    return message_->offset;
}
std::string_view Record::key() const {
    return view(message_->key, message_->key_len);
}
std::string_view Record::payload() const {
    const MessageReading& read = reading();
    if (!read.event || !read.event->in_value) return view(message_->payload, message_->len);
    return read.event->payload ? std::string_view(*read.event->payload) : std::string_view();
}
std::size_t Record::bytes() const {
    return message_->key_len + message_->len;
}

std::int64_t Record::time_ms() const {
    return rd_kafka_message_timestamp(message_.get(), nullptr);
}

std::string_view Record::id() const {
    const MessageReading& read = reading();
    return read.event ? std::string_view(read.event->id) : header_id();
}

std::vector<std::string> Record::ids_by_formats() const {
    std::vector<std::string> ids{std::string(header_id())};
    const HeaderList headers = header_list();
    const std::string_view payload = view(message_->payload, message_->len);
    for (const MessageFormat format :
         {MessageFormat::kAuto, MessageFormat::kDebezium, MessageFormat::kCloudEvents}) {
        const MessageReading read = read_message(format, {}, headers, payload);
        if (read.event) ids.push_back(read.event->id);
    }
    return ids;
}

// Most records have the header `id`, and that is all there is to read.
const MessageReading& Record::reading() const {
    if (reading_) return *reading_;
    const bool is_plain = format_ == MessageFormat::kRaw ||
                          (format_ == MessageFormat::kAuto && header_id().data() != nullptr &&
                           !may_have_schema(header_id()));
    if (is_plain) return reading_.emplace();
    const std::string_view payload = view(message_->payload, message_->len);
    return reading_.emplace(read_message(format_, {}, header_list(), payload));
}

HeaderList Record::header_list() const {
    HeaderList list;
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(message_.get(), &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return list;
    }
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    for (std::size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
        list.emplace_back(name, std::string(view(value, size)));
    }
    return list;
}

std::string_view Record::header_id() const {
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(message_.get(), &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) return {};
    const void* value = nullptr;
    std::size_t size = 0;
    if (rd_kafka_header_get_last(headers, "id", &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return {};
    }
    return view(value, size);
}

std::string Record::headers_json() const {
    if (const MessageReading& read = reading(); read.event) return read.event->headers;
    rd_kafka_headers_t* headers = nullptr;
    if (rd_kafka_message_headers(message_.get(), &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return "{}";
    }
    auto json = nlohmann::ordered_json::object();
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    for (std::size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
        const std::string_view text(name);
        if (text != "id") json[name] = std::string(view(value, size));
    }
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::unique_ptr<Client>> Client::open(const std::map<std::string, std::string>& settings,
                                             GroupEvents events, MessageFormat format) {
    std::unique_ptr<Client> client(new Client(std::move(events), format));
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    char error[kErrorBytes] = "";
    for (const auto& [name, value] : settings) {
        if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error) ==
            RD_KAFKA_CONF_OK) {
            continue;
        }
        rd_kafka_conf_destroy(conf);
        // The library's text repeats the value.
        return ErrorInfo{
            ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "kafka." + name + ": " +
                (is_secret(name) ? std::string("the value is not valid") : std::string(error))};
    }
    rd_kafka_conf_set_opaque(conf, client.get());
    outbox::kafka::be_quiet(conf);
    rd_kafka_conf_set_rebalance_cb(conf, [](rd_kafka_t* handle, rd_kafka_resp_err_t code,
                                            rd_kafka_topic_partition_list_t* list, void* opaque) {
        Client::on_rebalance(handle, code, list, opaque);
    });
    rd_kafka_conf_set_error_cb(conf,
                               [](rd_kafka_t* handle, int code, const char* reason, void* opaque) {
                                   Client::on_error(handle, code, reason, opaque);
                               });
    rd_kafka_conf_set_ssl_cert_verify_cb(
        conf, [](rd_kafka_t* /*handle*/, const char* /*broker*/, std::int32_t /*id*/, int* fault,
                 int /*depth*/, const char* /*certificate*/, std::size_t /*bytes*/,
                 char* /*reason*/, std::size_t /*reason_bytes*/,
                 void* opaque) { return Client::on_certificate(*fault, opaque); });
    client->handle_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (client->handle_ == nullptr) {
        rd_kafka_conf_destroy(conf);
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         std::string("making a Kafka consumer: ") + redact(error) +
                             std::string(outbox::kafka::options_remedy(error))};
    }
    rd_kafka_poll_set_consumer(client->handle_);
    client->records_ = rd_kafka_queue_new(client->handle_);
    return client;
}

Client::~Client() {
    if (handle_ == nullptr) return;
    close();
    let_go_of_queues(std::chrono::steady_clock::time_point::max());
    if (records_ != nullptr) rd_kafka_queue_destroy(records_);  // and what comes to it from now on
    // A group that nobody answers for is left without a word, and forgets this member in time.
    rd_kafka_destroy_flags(handle_, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

Status Client::subscribe(const std::vector<std::string>& topics) {
    List list(rd_kafka_topic_partition_list_new(static_cast<int>(topics.size())));
    for (const std::string& topic : topics) {
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    }
    const auto code = rd_kafka_subscribe(handle_, list.get());
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
    return {ErrorCode::kConfigInvalid, Advice::kStop,
            std::string("subscribing to the topics: ") + rd_kafka_err2str(code),
            rd_kafka_err2name(code)};
}

std::optional<Record> Client::record_of(rd_kafka_message_t* message) {
    if (message == nullptr) return std::nullopt;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) return Record(message, format_);
    const Record owner(message);
    if (message->rkt != nullptr) {
        const TopicPartition where{std::string(owner.topic()), owner.partition()};
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            events_.ended(where, owner.offset());
            return std::nullopt;
        }
        if (message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET) {
            events_.out_of_range(where);
            return std::nullopt;
        }
    }
    const bool unknown = message->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    events_.trouble({unknown ? ErrorCode::kTopicUnknown : ErrorCode::kSinkUnavailable,
                     Advice::kRetryDestination, rd_kafka_err2name(message->err),
                     "reading from Kafka: " + redact(rd_kafka_message_errstr(message))});
    return std::nullopt;
}

std::optional<Record> Client::serve(int timeout_ms) {
    return record_of(rd_kafka_consumer_poll(handle_, timeout_ms));
}

std::optional<Record> Client::poll(int timeout_ms) {
    return record_of(rd_kafka_consume_queue(records_, timeout_ms));
}

void Client::forward(const TopicPartition& where) {
    rd_kafka_queue_t* queue =
        rd_kafka_queue_get_partition(handle_, where.topic.c_str(), where.partition);
    if (queue == nullptr) return;
    rd_kafka_queue_forward(queue, records_);
    constexpr std::chrono::seconds kSurelyStopped{60};
    const auto now = std::chrono::steady_clock::now();
    let_go_of_queues(now - kSurelyStopped);
    queues_.push_back({now, queue});
}

// Stopping a partition ends the forwarding, some time later. Of one that is gone with its topic the
// library forgets the queue then, but not what came to it after that, whose references keep
// rd_kafka_destroy waiting for ever.
void Client::let_go_of_queues(std::chrono::steady_clock::time_point until) {
    for (; !queues_.empty() && queues_.front().since <= until; queues_.pop_front()) {
        rd_kafka_queue_forward(queues_.front().queue, records_);
        rd_kafka_queue_destroy(queues_.front().queue);
    }
}

void Client::commit(const std::vector<PlacedOffset>& offsets, bool wait) {
    if (offsets.empty()) return;
    List list(rd_kafka_topic_partition_list_new(static_cast<int>(offsets.size())));
    for (const PlacedOffset& placed : offsets) {
        auto* const added = rd_kafka_topic_partition_list_add(
            list.get(), placed.where.topic.c_str(), placed.where.partition);
        added->offset = placed.offset;
        if (placed.mark.empty()) continue;
        added->metadata = ::strdup(placed.mark.c_str());  // the list frees it
        added->metadata_size = placed.mark.size();
    }
    // A failure costs repeats, which the inbox drops; the next commit tries again.
    if (!wait) {
        static_cast<void>(rd_kafka_commit(handle_, list.get(), 1));
        return;
    }
    rd_kafka_queue_t* const answer = rd_kafka_queue_new(handle_);
    if (rd_kafka_commit_queue(handle_, list.get(), answer, nullptr, nullptr) ==
        RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_event_t* const told = rd_kafka_queue_poll(answer, kCommitTimeoutMs);
        if (told != nullptr) rd_kafka_event_destroy(told);
    }
    rd_kafka_queue_destroy(answer);
}

Result<std::vector<PlacedOffset>> Client::committed(
    const std::vector<TopicPartition>& places) const {
    constexpr int kTimeoutMs = 5'000;
    const List list(rd_kafka_topic_partition_list_new(static_cast<int>(places.size())));
    for (const TopicPartition& where : places) {
        rd_kafka_topic_partition_list_add(list.get(), where.topic.c_str(), where.partition);
    }
    const auto code = rd_kafka_committed(handle_, list.get(), kTimeoutMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return ErrorInfo{
            ErrorCode::kSinkUnavailable, Advice::kRetryDestination, rd_kafka_err2name(code),
            std::string("asking Kafka for the group's offset: ") + rd_kafka_err2str(code)};
    }
    std::vector<PlacedOffset> found;
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& one = list->elems[i];
        if (one.err != RD_KAFKA_RESP_ERR_NO_ERROR || one.offset < 0) continue;
        found.push_back({{one.topic, one.partition},
                         one.offset,
                         std::string(view(one.metadata, one.metadata_size))});
    }
    return found;
}

void Client::restart(const TopicPartition& where, const Start& start) {
    const List list = list_of(where);
    tell(rd_kafka_incremental_unassign(handle_, list.get()));
    forward(where);
    list->elems[0].offset = offset_of(start);
    tell(rd_kafka_incremental_assign(handle_, list.get()));
    forward(where);
    if (start.hold) {
        hold(where);
    } else {
        rd_kafka_resume_partitions(handle_, list.get());
    }
}

void Client::hold(const TopicPartition& where) {
    rd_kafka_pause_partitions(handle_, list_of(where).get());
}

void Client::resume(const TopicPartition& where) {
    rd_kafka_resume_partitions(handle_, list_of(where).get());
}

std::string Client::cluster_id() const {
    constexpr int kTimeoutMs = 5'000;
    char* const id = rd_kafka_clusterid(handle_, kTimeoutMs);
    if (id == nullptr) return {};
    std::string copy(id);
    rd_kafka_mem_free(handle_, id);
    return copy;
}

std::optional<Client::Extent> Client::extent_of(const TopicPartition& where) const {
    std::int64_t low = 0;
    std::int64_t high = 0;
    if (rd_kafka_get_watermark_offsets(handle_, where.topic.c_str(), where.partition, &low,
                                       &high) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        high < 0) {
        return std::nullopt;
    }
    return Extent{low, high};
}

std::optional<Client::Extent> Client::ask_extent_of(const TopicPartition& where) const {
    constexpr int kTimeoutMs = 5'000;
    Extent extent;
    if (rd_kafka_query_watermark_offsets(handle_, where.topic.c_str(), where.partition,
                                         &extent.begin, &extent.end,
                                         kTimeoutMs) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return std::nullopt;
    }
    return extent;
}

std::optional<ErrorInfo> Client::fatal() const {
    char text[kErrorBytes] = "";
    const auto cause = rd_kafka_fatal_error(handle_, text, sizeof text);
    if (cause == RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    const bool fenced = cause == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    return ErrorInfo{ErrorCode::kSinkClosed, Advice::kStop, rd_kafka_err2name(cause),
                     "Kafka: " + redact(text) +
                         (fenced ? "; another member has the same kafka.group.instance.id: give "
                                   "each its own"
                                 : "; start the consumer anew")};
}

void Client::close() {
    if (closed_) return;
    closed_ = true;
    rd_kafka_queue_t* const queue = rd_kafka_queue_new(handle_);
    rd_kafka_error_t* const failure = rd_kafka_consumer_close_queue(handle_, queue);
    if (failure != nullptr) rd_kafka_error_destroy(failure);
    const auto until = std::chrono::steady_clock::now() + kCloseWithin;
    while (failure == nullptr && rd_kafka_consumer_closed(handle_) == 0 &&
           std::chrono::steady_clock::now() < until) {
        const std::optional<Record> dropped =
            record_of(rd_kafka_consume_queue(queue, kCloseLookMs));
    }
    rd_kafka_queue_destroy(queue);
}

void Client::on_rebalance(rd_kafka_s* /*handle*/, int error, rd_kafka_topic_partition_list_s* list,
                          void* client) {
    static_cast<Client*>(client)->rebalance(error, list);
}

void Client::rebalance(int error, rd_kafka_topic_partition_list_s* list) {
    const std::vector<TopicPartition> partitions = partitions_of(list);
    rd_kafka_error_s* failure = nullptr;
    if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        for (const TopicPartition& where : partitions) forward(where);
        const auto starts = events_.given(partitions);
        for (std::size_t i = 0; i < partitions.size(); ++i) {
            list->elems[i].offset = offset_of(starts[i]);
        }
        failure = rd_kafka_incremental_assign(handle_, list);
        for (std::size_t i = 0; i < partitions.size(); ++i) {
            if (starts[i].hold) hold(partitions[i]);
        }
    } else {
        events_.taken(partitions, rd_kafka_assignment_lost(handle_) != 0);
        failure = rd_kafka_incremental_unassign(handle_, list);
    }
    tell(failure);
}

void Client::tell(rd_kafka_error_s* failure) const {
    if (failure == nullptr) return;
    events_.trouble({ErrorCode::kSinkUnavailable, Advice::kRetryDestination,
                     rd_kafka_error_name(failure), rd_kafka_error_string(failure)});
    rd_kafka_error_destroy(failure);
}

void Client::on_error(rd_kafka_s* /*handle*/, int error, const char* reason, void* client) {
    const auto code = static_cast<rd_kafka_resp_err_t>(error);
    const Client& self = *static_cast<Client*>(client);
    const GroupEvents& events = self.events_;
    if (!events.trouble) return;
    const outbox::kafka::Refusal refusal = outbox::kafka::explain(
        rd_kafka_err2name(code), reason, self.certificate_error_.load(), rd_kafka_version());
    const ErrorCode ours = refusal.name == "_AUTHENTICATION" ? ErrorCode::kAuthFailed
                           : refusal.name == "_SSL"          ? ErrorCode::kConnectFailed
                                                             : ErrorCode::kSinkUnavailable;
    events.trouble(
        {ours, Advice::kRetryDestination, refusal.name,
         "Kafka: " + redact(refusal.text) + (refusal.remedy.empty() ? "" : "; " + refusal.remedy)});
}

// As the sink's client does (brokers/kafka/client.cpp).
int Client::on_certificate(int error, void* client) {
    if (error == 0) return 1;
    static_cast<Client*>(client)->certificate_error_.store(error);
    return 0;
}

}  // namespace outbox::consumer::kafka
