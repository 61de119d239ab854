#include "brokers/kafka/look.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "brokers/kafka/client.h"
#include "brokers/kafka/errors.h"
#include "brokers/kafka/sink.h"

namespace outbox::kafka {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string trouble_of(const std::string& topic, const Fault& fault) {
    return describe(to_error(fault, "topic " + topic));
}

// What the broker says of their settings; a topic without an answer is not in it. Asking for these
// makes no topic, as asking for partitions might.
std::map<std::string, Events::TopicAnswer> settings_of(Client& client,
                                                       std::span<const std::string> names,
                                                       milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    for (const std::string& name : names) client.describe(name, timeout);
    std::map<std::string, Events::TopicAnswer> answers;
    Events events;
    while (answers.size() < names.size() && Clock::now() < deadline) {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
        client.poll(std::max(left, milliseconds(1)), events);
        for (Events::TopicAnswer& answer : events.topics) {
            answers.insert_or_assign(answer.topic, std::move(answer));
        }
        events.clear();
    }
    return answers;
}

// A partition without a leader is told as such.
void count_copies(const std::vector<Client::Partitions::Copies>& partitions, TopicReport& report) {
    for (const Client::Partitions::Copies& one : partitions) {
        const bool is_first = &one == partitions.data();
        report.replicas = is_first ? one.replicas : std::min(report.replicas, one.replicas);
        const std::size_t needed = std::min(report.min_in_sync, one.replicas);
        report.too_few += one.in_sync > 0 && one.in_sync < needed ? 1 : 0;
    }
}

}  // namespace

Result<std::vector<TopicReport>> look_at_topics(const KafkaConfig& config,
                                                std::span<const std::string> names) {
    {
        const auto sink = KafkaSink::open(config);
        if (!sink.ok()) return sink.status();
        if (const Status reached = (*sink)->check(); !reached.ok()) return reached;
    }
    const auto opened = Client::open(librdkafka_settings(config, wanted_batch_bytes(config)));
    if (!opened.ok()) return opened.status();
    Client& client = **opened;
    const milliseconds timeout = config.connect_timeout;
    const auto answers = settings_of(client, names, timeout);
    std::vector<TopicReport> reports;
    for (const std::string& name : names) {
        TopicReport& report = reports.emplace_back();
        report.name = name;
        const auto answer = answers.find(name);
        if (answer == answers.end()) {
            report.trouble = "topic " + name + ": the brokers said nothing of it in time";
            continue;
        }
        if (!answer->second.fault.name.empty()) {
            report.trouble = trouble_of(name, answer->second.fault);
            continue;
        }
        report.kept = answer->second.kept;
        report.min_in_sync = answer->second.min_in_sync;
        const auto topic = client.open_topic(name);
        if (!topic.ok()) return topic.status();
        const Client::Partitions partitions = client.partitions(*topic, timeout);
        if (!partitions.fault.name.empty()) report.trouble = trouble_of(name, partitions.fault);
        report.partitions = partitions.leaders.size();
        report.leaderless = static_cast<std::size_t>(
            std::count(partitions.leaders.begin(), partitions.leaders.end(), false));
        count_copies(partitions.copies, report);
    }
    return reports;
}

}  // namespace outbox::kafka
