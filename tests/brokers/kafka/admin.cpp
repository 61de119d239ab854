#include "tests/brokers/kafka/admin.h"

#include <chrono>
#include <functional>
#include <librdkafka/rdkafka.h>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/support/kafka_client.h"

namespace outbox::test {

namespace {

constexpr int kDeadlineMs = 120'000;

class Admin {
  public:
    explicit Admin(const std::string& bootstrap) {
        char error[512] = "";
        rd_kafka_conf_t* conf = rd_kafka_conf_new();
        rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap.c_str(), error, sizeof error);
        handle_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error));
        if (!handle_) throw std::runtime_error(error);
        queue_.reset(rd_kafka_queue_new(handle_.get()));
    }
    rd_kafka_t* handle() { return handle_.get(); }
    rd_kafka_queue_t* queue() { return queue_.get(); }

    using Event = std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)>;
    Event answer(const std::string& what) {
        Event event(rd_kafka_queue_poll(queue_.get(), kDeadlineMs), rd_kafka_event_destroy);
        if (!event) throw std::runtime_error(what + ": no answer");
        check(what, rd_kafka_event_error(event.get()));
        return event;
    }
    static void check(const std::string& what, rd_kafka_resp_err_t error) {
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            throw std::runtime_error(what + ": " + rd_kafka_err2str(error));
        }
    }

  private:
    std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> handle_{nullptr, rd_kafka_destroy};
    std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> queue_{
        nullptr, rd_kafka_queue_destroy};
};

bool exists(Admin& admin, const std::string& topic) {
    const rd_kafka_metadata_t* metadata = nullptr;
    Admin::check("metadata", rd_kafka_metadata(admin.handle(), 1, nullptr, &metadata, kDeadlineMs));
    bool found = false;
    for (int i = 0; i < metadata->topic_cnt; ++i) found |= metadata->topics[i].topic == topic;
    rd_kafka_metadata_destroy(metadata);
    return found;
}

// The controller answers before the brokers have heard of it.
void wait_until(const std::string& what, const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
    while (!holds()) {
        if (std::chrono::steady_clock::now() >= end) throw std::runtime_error(what + ": not yet");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

void wait_until_visible(Admin& admin, const std::string& topic, bool visible) {
    wait_until(topic + (visible ? " is visible" : " is hidden"),
               [&] { return exists(admin, topic) == visible; });
}

std::string max_message_bytes(Admin& admin, const std::string& topic) {
    rd_kafka_ConfigResource_t* resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str());
    rd_kafka_DescribeConfigs(admin.handle(), &resource, 1, nullptr, admin.queue());
    rd_kafka_ConfigResource_destroy(resource);
    const auto event = admin.answer("describe " + topic);
    std::size_t count = 0;
    const auto** results = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event.get()), &count);
    Admin::check("describe " + topic, rd_kafka_ConfigResource_error(results[0]));
    const auto** entries = rd_kafka_ConfigResource_configs(results[0], &count);
    for (std::size_t i = 0; i < count; ++i) {
        if (std::string(rd_kafka_ConfigEntry_name(entries[i])) != "max.message.bytes") continue;
        return rd_kafka_ConfigEntry_value(entries[i]);
    }
    return {};
}

}  // namespace

void set_max_message_bytes(const std::string& bootstrap, const std::string& topic,
                           std::size_t bytes) {
    Admin admin(bootstrap);
    rd_kafka_ConfigResource_t* resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str());
    rd_kafka_ConfigResource_set_config(resource, "max.message.bytes",
                                       std::to_string(bytes).c_str());
    rd_kafka_AlterConfigs(admin.handle(), &resource, 1, nullptr, admin.queue());
    rd_kafka_ConfigResource_destroy(resource);
    const auto event = admin.answer("alter " + topic);
    std::size_t count = 0;
    const auto** results = rd_kafka_AlterConfigs_result_resources(
        rd_kafka_event_AlterConfigs_result(event.get()), &count);
    Admin::check("alter " + topic, rd_kafka_ConfigResource_error(results[0]));
    wait_until("alter " + topic,
               [&] { return max_message_bytes(admin, topic) == std::to_string(bytes); });
}

void remove_topic(const std::string& bootstrap, const std::string& topic) {
    Admin admin(bootstrap);
    rd_kafka_DeleteTopic_t* wanted = rd_kafka_DeleteTopic_new(topic.c_str());
    rd_kafka_DeleteTopics(admin.handle(), &wanted, 1, nullptr, admin.queue());
    rd_kafka_DeleteTopic_destroy(wanted);
    const auto event = admin.answer("delete " + topic);
    std::size_t count = 0;
    const auto** results = rd_kafka_DeleteTopics_result_topics(
        rd_kafka_event_DeleteTopics_result(event.get()), &count);
    Admin::check("delete " + topic, rd_kafka_topic_result_error(results[0]));
    wait_until_visible(admin, topic, false);
}

namespace {

void add_rule(Admin& admin, const std::string& topic, rd_kafka_AclOperation_t operation,
              rd_kafka_AclPermissionType_t permission) {
    char error[512] = "";
    rd_kafka_AclBinding_t* acl = rd_kafka_AclBinding_new(
        RD_KAFKA_RESOURCE_TOPIC, topic.c_str(), RD_KAFKA_RESOURCE_PATTERN_LITERAL, "User:ANONYMOUS",
        "*", operation, permission, error, sizeof error);
    rd_kafka_CreateAcls(admin.handle(), &acl, 1, nullptr, admin.queue());
    rd_kafka_AclBinding_destroy(acl);
    const auto event = admin.answer("rule for " + topic);
    std::size_t count = 0;
    const auto** results =
        rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event.get()), &count);
    if (const auto* failed = rd_kafka_acl_result_error(results[0])) {
        throw std::runtime_error(rd_kafka_error_string(failed));
    }
    wait_until("rule for " + topic, [&] {
        rd_kafka_AclBindingFilter_t* filter = rd_kafka_AclBindingFilter_new(
            RD_KAFKA_RESOURCE_TOPIC, topic.c_str(), RD_KAFKA_RESOURCE_PATTERN_LITERAL,
            "User:ANONYMOUS", "*", operation, permission, error, sizeof error);
        rd_kafka_DescribeAcls(admin.handle(), filter, nullptr, admin.queue());
        rd_kafka_AclBinding_destroy(filter);
        const auto described = admin.answer("rules for " + topic);
        rd_kafka_DescribeAcls_result_acls(rd_kafka_event_DescribeAcls_result(described.get()),
                                          &count);
        return count > 0;
    });
}

}  // namespace

void deny_write(const std::string& bootstrap, const std::string& topic) {
    Admin admin(bootstrap);
    add_rule(admin, topic, RD_KAFKA_ACL_OPERATION_WRITE, RD_KAFKA_ACL_PERMISSION_TYPE_DENY);
    // A topic that has any rule is closed to whom none allows: it also vanishes from listings.
    wait_until_visible(admin, topic, false);
}

void deny_only_write(const std::string& bootstrap, const std::string& topic) {
    Admin admin(bootstrap);
    for (const auto operation : {RD_KAFKA_ACL_OPERATION_DESCRIBE, RD_KAFKA_ACL_OPERATION_READ,
                                 RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS}) {
        add_rule(admin, topic, operation, RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW);
    }
    wait_until_visible(admin, topic, true);
}

void deny_describing_settings(const std::string& bootstrap, const std::string& topic) {
    Admin admin(bootstrap);
    for (const auto operation : {RD_KAFKA_ACL_OPERATION_DESCRIBE, RD_KAFKA_ACL_OPERATION_READ,
                                 RD_KAFKA_ACL_OPERATION_WRITE}) {
        add_rule(admin, topic, operation, RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW);
    }
    wait_until_visible(admin, topic, true);
}

void create_topic_on(const std::string& bootstrap, const std::string& topic,
                     const std::vector<int>& brokers) {
    Admin admin(bootstrap);
    char error[512] = "";
    rd_kafka_NewTopic_t* wanted = rd_kafka_NewTopic_new(
        topic.c_str(), static_cast<int>(brokers.size()), -1, error, sizeof error);
    if (wanted == nullptr) throw std::runtime_error(error);
    for (std::size_t i = 0; i < brokers.size(); ++i) {
        std::int32_t broker = brokers[i];
        rd_kafka_NewTopic_set_replica_assignment(wanted, static_cast<std::int32_t>(i), &broker, 1,
                                                 error, sizeof error);
    }
    rd_kafka_CreateTopics(admin.handle(), &wanted, 1, nullptr, admin.queue());
    rd_kafka_NewTopic_destroy(wanted);
    const auto event = admin.answer("create " + topic);
    std::size_t count = 0;
    const auto** results = rd_kafka_CreateTopics_result_topics(
        rd_kafka_event_CreateTopics_result(event.get()), &count);
    Admin::check("create " + topic, rd_kafka_topic_result_error(results[0]));
    for (std::size_t i = 0; i < brokers.size(); ++i) {
        wait_for_leader(bootstrap, topic, static_cast<int>(i), true);
    }
}

void wait_for_leader(const std::string& bootstrap, const std::string& topic, int partition,
                     bool has_leader) {
    Admin admin(bootstrap);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
    while (std::chrono::steady_clock::now() < end) {
        const rd_kafka_metadata_t* metadata = nullptr;
        Admin::check("metadata",
                     rd_kafka_metadata(admin.handle(), 1, nullptr, &metadata, kDeadlineMs));
        bool found = false;
        for (int i = 0; i < metadata->topic_cnt; ++i) {
            const auto& described = metadata->topics[i];
            if (described.topic != topic) continue;
            for (int j = 0; j < described.partition_cnt; ++j) {
                const auto& part = described.partitions[j];
                found |= part.id == partition && (part.leader >= 0) == has_leader;
            }
        }
        rd_kafka_metadata_destroy(metadata);
        if (found) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    throw std::runtime_error(topic + ": the leader does not change");
}

void allow_write_again(const std::string& bootstrap, const std::string& topic) {
    Admin admin(bootstrap);
    char error[512] = "";
    rd_kafka_AclBindingFilter_t* filter = rd_kafka_AclBindingFilter_new(
        RD_KAFKA_RESOURCE_TOPIC, topic.c_str(), RD_KAFKA_RESOURCE_PATTERN_LITERAL, nullptr, nullptr,
        RD_KAFKA_ACL_OPERATION_ANY, RD_KAFKA_ACL_PERMISSION_TYPE_ANY, error, sizeof error);
    rd_kafka_DeleteAcls(admin.handle(), &filter, 1, nullptr, admin.queue());
    rd_kafka_AclBinding_destroy(filter);
    admin.answer("allow " + topic);
    wait_until_visible(admin, topic, true);
}

std::vector<Arrived> kafka_arrived(const std::string& bootstrap, const std::string& topic,
                                   std::size_t count) {
    KafkaReader reader(bootstrap, topic);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
    std::vector<Arrived> found;
    std::set<std::string> ids;
    while (ids.size() < count && std::chrono::steady_clock::now() < end) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        const auto& records = reader.read(found.size() + count - ids.size(), left);
        for (std::size_t i = found.size(); i < records.size(); ++i) {
            const KafkaRecord& record = records[i];
            found.push_back(
                {record.header("id").value_or(""), record.key, record.value, record.headers});
            ids.insert(found.back().id);
        }
    }
    return found;
}

}  // namespace outbox::test
