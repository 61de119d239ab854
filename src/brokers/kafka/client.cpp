#include "brokers/kafka/client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <librdkafka/rdkafka.h>

#include "brokers/kafka/config.h"
#include "brokers/kafka/quiet.h"
#include "brokers/kafka/refusal.h"

namespace outbox::kafka {

namespace {

constexpr std::size_t kErrorBytes = 512;
constexpr std::size_t kDeliveriesAtOnce = 256;
constexpr int kMaxEventsPerPoll = 1'000;

struct Destroy {
    void operator()(rd_kafka_conf_t* conf) const { rd_kafka_conf_destroy(conf); }
    void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
    void operator()(rd_kafka_error_t* error) const { rd_kafka_error_destroy(error); }
    void operator()(rd_kafka_headers_t* headers) const { rd_kafka_headers_destroy(headers); }
    void operator()(rd_kafka_AdminOptions_t* options) const {
        rd_kafka_AdminOptions_destroy(options);
    }
    void operator()(rd_kafka_ConfigResource_t* resource) const {
        rd_kafka_ConfigResource_destroy(resource);
    }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Fault fault_of(rd_kafka_resp_err_t error, const char* text = nullptr) {
    return {rd_kafka_err2name(error), text != nullptr ? text : rd_kafka_err2str(error)};
}

// Changes nothing: what OpenSSL refuses stays refused. Only refusals are noted: connections shake
// hands side by side, and a certificate that is all right (each one's CA comes first) says nothing
// of theirs.
int note_certificate(rd_kafka_t* /*handle*/, const char* /*broker*/, std::int32_t /*broker_id*/,
                     int* error, int /*depth*/, const char* /*certificate*/, std::size_t /*bytes*/,
                     char* /*reason*/, std::size_t /*reason_bytes*/, void* noted) {
    if (*error == 0) return 1;
    static_cast<std::atomic<int>*>(noted)->store(*error);
    return 0;
}

Status set(rd_kafka_conf_t* conf, const std::string& name, const std::string& value) {
    char error[kErrorBytes] = "";
    const auto result = rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error);
    if (result == RD_KAFKA_CONF_OK) return {};
    if (result == RD_KAFKA_CONF_UNKNOWN) {
        return invalid("librdkafka knows no option '" + name + "'; see its CONFIGURATION.md");
    }
    // The library's text repeats the value.
    return invalid("kafka." + name + ": " +
                   (is_secret(name) ? std::string("the value is not valid") : std::string(error)));
}

Result<Owned<rd_kafka_conf_t>> configure(const std::map<std::string, std::string>& settings) {
    Owned<rd_kafka_conf_t> conf(rd_kafka_conf_new());
    for (const auto& [name, value] : settings) {
        if (Status status = set(conf.get(), name, value); !status.ok()) {
            return std::move(status).error();
        }
    }
    rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    if (!settings.contains("debug")) be_quiet(conf.get());
    return conf;
}

// librdkafka hands it back unread.
void* opaque(std::uintptr_t number) {
    return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr)
}

rd_kafka_vu_t value_of(rd_kafka_vtype_t type) {
    rd_kafka_vu_t value{};
    value.vtype = type;
    return value;
}

rd_kafka_vu_t bytes_of(rd_kafka_vtype_t type, std::string_view bytes) {
    rd_kafka_vu_t value = value_of(type);
    // librdkafka only reads it: no F_FREE.
    value.u.mem.ptr = const_cast<char*>(bytes.data());
    value.u.mem.size = bytes.size();
    return value;
}

Owned<rd_kafka_headers_t> headers_of(const spi::Record& record) {
    Owned<rd_kafka_headers_t> headers(rd_kafka_headers_new(record.headers.size()));
    for (const spi::HeaderView& header : record.headers) {
        rd_kafka_header_add(headers.get(), header.name.data(),
                            static_cast<ssize_t>(header.name.size()), header.value.data(),
                            static_cast<ssize_t>(header.value.size()));
    }
    return headers;
}

// The value of a topic's setting; empty where there is none.
std::string_view value_of(const rd_kafka_ConfigResource_t* resource, std::string_view setting) {
    std::size_t count = 0;
    const auto** entries = rd_kafka_ConfigResource_configs(resource, &count);
    for (std::size_t i = 0; i < count; ++i) {
        if (rd_kafka_ConfigEntry_name(entries[i]) != setting) continue;
        const char* text = rd_kafka_ConfigEntry_value(entries[i]);
        return text == nullptr ? std::string_view() : std::string_view(text);
    }
    return {};
}

std::optional<std::int64_t> number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc()) return std::nullopt;
    return number;
}

std::optional<std::size_t> max_message_bytes(const rd_kafka_ConfigResource_t* resource) {
    const auto bytes = number_of(value_of(resource, "max.message.bytes"));
    if (!bytes || *bytes < 0) return std::nullopt;
    return static_cast<std::size_t>(*bytes);
}

std::size_t min_in_sync(const rd_kafka_ConfigResource_t* resource) {
    const auto replicas = number_of(value_of(resource, "min.insync.replicas"));
    return static_cast<std::size_t>(std::max<std::int64_t>(0, replicas.value_or(0)));
}

// Only what is deleted goes by its age: a compacted topic keeps each key's last record.
std::optional<std::chrono::milliseconds> retention(const rd_kafka_ConfigResource_t* resource) {
    if (value_of(resource, "cleanup.policy").find("delete") == std::string_view::npos) {
        return std::nullopt;
    }
    constexpr std::chrono::years kForEver{100};
    const auto ms = number_of(value_of(resource, "retention.ms"));
    if (!ms || *ms < 0 || std::chrono::milliseconds(*ms) > kForEver) return std::nullopt;
    return std::chrono::milliseconds(*ms);
}

}  // namespace

void Events::clear() {
    acknowledged.clear();
    refused.clear();
    topics.clear();
    connection.reset();
    fatal.reset();
    all_brokers_down = false;
}

Result<std::unique_ptr<Client>> Client::open(const std::map<std::string, std::string>& settings) {
    auto conf = configure(settings);
    if (!conf.ok()) return conf.error();
    CertificateError certificate_error(new std::atomic<int>(0));
    rd_kafka_conf_set_opaque(conf->get(), certificate_error.get());
    rd_kafka_conf_set_ssl_cert_verify_cb(conf->get(), note_certificate);
    char error[kErrorBytes] = "";
    rd_kafka_t* handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf->get(), error, sizeof error);
    if (handle == nullptr) {
        return invalid(std::string("librdkafka refuses its configuration: ") + error +
                       std::string(outbox::kafka::options_remedy(error)));
    }
    static_cast<void>(conf->release());  // the producer owns it now
    return std::unique_ptr<Client>(new Client(handle, std::move(certificate_error)));
}

Client::Client(rd_kafka_s* handle, CertificateError certificate_error)
    : certificate_error_(std::move(certificate_error)),
      handle_(handle),
      queue_(rd_kafka_queue_get_main(handle)) {}

Client::~Client() {
    for (Topic topic : topics_) rd_kafka_topic_destroy(topic);
    rd_kafka_queue_destroy(queue_);
    rd_kafka_destroy(handle_);
}

Result<Client::Topic> Client::open_topic(const std::string& name) {
    Topic topic = rd_kafka_topic_new(handle_, name.c_str(), nullptr);
    if (topic == nullptr) return to_error(fault_of(rd_kafka_last_error()), "topic " + name);
    topics_.push_back(topic);
    return topic;
}

void Client::close_topic(Topic topic) {
    topics_.erase(std::find(topics_.begin(), topics_.end(), topic));
    rd_kafka_topic_destroy(topic);
}

Client::Partitions Client::partitions(Topic topic, std::chrono::milliseconds timeout) {
    const rd_kafka_metadata_t* metadata = nullptr;
    Partitions found;
    const auto error =
        rd_kafka_metadata(handle_, 0, topic, &metadata, static_cast<int>(timeout.count()));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        found.fault = fault_of(error);
        return found;
    }
    for (int i = 0; i < metadata->topic_cnt; ++i) {
        const rd_kafka_metadata_topic_t& described = metadata->topics[i];
        if (described.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            found.fault = fault_of(described.err);
            continue;
        }
        for (int j = 0; j < described.partition_cnt; ++j) {
            const auto id = static_cast<std::size_t>(described.partitions[j].id);
            if (found.leaders.size() <= id) {
                found.leaders.resize(id + 1);
                found.copies.resize(id + 1);
            }
            found.leaders[id] = described.partitions[j].leader >= 0;
            found.copies[id] = {static_cast<std::size_t>(described.partitions[j].replica_cnt),
                                static_cast<std::size_t>(described.partitions[j].isr_cnt)};
        }
    }
    rd_kafka_metadata_destroy(metadata);
    if (found.leaders.empty() && found.fault.name.empty()) {
        found.fault = fault_of(RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE);
    }
    return found;
}

std::int32_t Client::partition_of(std::string_view key, std::int32_t partitions) {
    return rd_kafka_msg_partitioner_murmur2(nullptr, key.data(), key.size(), partitions, nullptr,
                                            nullptr);
}

Client::Produced Client::produce(Topic topic, std::int32_t partition, const spi::Record& record,
                                 std::uint32_t slot, Fault& refusal) {
    std::array<rd_kafka_vu_t, 7> values{};
    values[0] = value_of(RD_KAFKA_VTYPE_RKT);
    values[0].u.rkt = topic;
    values[1] = bytes_of(RD_KAFKA_VTYPE_KEY, record.key);
    values[2] = bytes_of(RD_KAFKA_VTYPE_VALUE, record.value);
    values[3] = value_of(RD_KAFKA_VTYPE_OPAQUE);
    values[3].u.ptr = opaque(slot);
    values[4] = value_of(RD_KAFKA_VTYPE_PARTITION);
    values[4].u.i32 = partition;
    std::size_t count = 5;
    Owned<rd_kafka_headers_t> headers;
    if (!record.headers.empty()) {
        headers = headers_of(record);
        values[count] = value_of(RD_KAFKA_VTYPE_HEADERS);
        values[count++].u.headers = headers.get();
    }
    if (record.timestamp_ms >= 0) {
        values[count] = value_of(RD_KAFKA_VTYPE_TIMESTAMP);
        values[count++].u.i64 = record.timestamp_ms;
    }
    const Owned<rd_kafka_error_t> error(rd_kafka_produceva(handle_, values.data(), count));
    if (error == nullptr) {
        static_cast<void>(headers.release());  // the message owns them now
        return Produced::kTaken;
    }
    if (rd_kafka_error_code(error.get()) == RD_KAFKA_RESP_ERR__QUEUE_FULL) return Produced::kFull;
    refusal = fault_of(rd_kafka_error_code(error.get()), rd_kafka_error_string(error.get()));
    return Produced::kRefused;
}

void Client::describe(const std::string& topic, std::chrono::milliseconds timeout) {
    const Owned<rd_kafka_AdminOptions_t> options(
        rd_kafka_AdminOptions_new(handle_, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS));
    char error[kErrorBytes] = "";
    rd_kafka_AdminOptions_set_request_timeout(options.get(), static_cast<int>(timeout.count()),
                                              error, sizeof error);
    // A number, not a pointer: nothing to free when the answer never comes.
    const std::uintptr_t question = next_question_++;
    questions_[question] = topic;
    rd_kafka_AdminOptions_set_opaque(options.get(), opaque(question));
    const Owned<rd_kafka_ConfigResource_t> resource(
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
    rd_kafka_ConfigResource_t* resources[] = {resource.get()};
    rd_kafka_DescribeConfigs(handle_, resources, 1, options.get(), queue_);
}

void Client::poll(std::chrono::milliseconds wait, Events& events) {
    auto wait_ms = static_cast<int>(wait.count());
    for (int i = 0; i < kMaxEventsPerPoll; ++i) {
        const Owned<rd_kafka_event_t> event(rd_kafka_queue_poll(queue_, wait_ms));
        if (event == nullptr) return;
        take_event(event.get(), events);
        wait_ms = 0;
    }
}

void Client::take_event(rd_kafka_op_s* event, Events& events) {
    switch (rd_kafka_event_type(event)) {
        case RD_KAFKA_EVENT_DR:
            take_outcomes(event, events);
            break;
        case RD_KAFKA_EVENT_ERROR:
            take_error(event, events);
            break;
        case RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT:
            take_description(event, events);
            break;
        default:
            break;
    }
}

void Client::take_outcomes(rd_kafka_op_s* event, Events& events) {
    std::array<const rd_kafka_message_t*, kDeliveriesAtOnce> messages;
    while (true) {
        const std::size_t count =
            rd_kafka_event_message_array(event, messages.data(), messages.size());
        if (count == 0) return;
        for (std::size_t i = 0; i < count; ++i) {
            const rd_kafka_message_t& message = *messages[i];
            const auto slot =
                static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(message._private));
            if (message.err == RD_KAFKA_RESP_ERR_NO_ERROR) {
                events.acknowledged.push_back(slot);
            } else {
                events.refused.push_back({slot, fault_of(message.err)});
            }
        }
    }
}

void Client::take_error(rd_kafka_op_s* event, Events& events) {
    const auto code = rd_kafka_event_error(event);
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        events.all_brokers_down = true;
    } else if (code == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event) != 0) {
        char text[kErrorBytes] = "";
        const auto cause = rd_kafka_fatal_error(handle_, text, sizeof text);
        events.fatal = fault_of(cause, text);
    } else {
        Fault fault = fault_of(code, rd_kafka_event_error_string(event));
        outbox::kafka::Refusal refusal = outbox::kafka::explain(
            fault.name, fault.text, certificate_error_->load(), rd_kafka_version());
        events.connection = {std::move(refusal.name), std::move(refusal.text),
                             std::move(refusal.remedy)};
    }
}

void Client::take_description(rd_kafka_op_s* event, Events& events) {
    const auto question =
        questions_.find(reinterpret_cast<std::uintptr_t>(rd_kafka_event_opaque(event)));
    if (question == questions_.end()) return;
    Events::TopicAnswer answer;
    answer.topic = question->second;
    questions_.erase(question);
    if (const auto code = rd_kafka_event_error(event); code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        answer.fault = fault_of(code, rd_kafka_event_error_string(event));
        events.topics.push_back(std::move(answer));
        return;
    }
    std::size_t count = 0;
    const auto** resources = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event), &count);
    if (count == 1) {
        const auto code = rd_kafka_ConfigResource_error(resources[0]);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
            answer.fault = fault_of(code, rd_kafka_ConfigResource_error_string(resources[0]));
        } else {
            answer.max_message_bytes = max_message_bytes(resources[0]);
            answer.kept = retention(resources[0]);
            answer.min_in_sync = min_in_sync(resources[0]);
        }
    }
    events.topics.push_back(std::move(answer));
}

void Client::purge_unsent() {
    rd_kafka_purge(handle_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

std::string Client::cluster_id(std::chrono::milliseconds timeout) {
    char* id = rd_kafka_clusterid(handle_, static_cast<int>(timeout.count()));
    std::string out = id == nullptr ? "" : id;
    if (id != nullptr) rd_kafka_mem_free(handle_, id);
    return out;
}

std::optional<Fault> Client::reach(std::chrono::milliseconds timeout) {
    const rd_kafka_metadata_t* metadata = nullptr;
    const auto error =
        rd_kafka_metadata(handle_, 0, nullptr, &metadata, static_cast<int>(timeout.count()));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return fault_of(error);
    rd_kafka_metadata_destroy(metadata);
    return std::nullopt;
}

}  // namespace outbox::kafka
