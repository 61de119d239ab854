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

struct Copies {
    std::size_t fewest = 0;   // replicas of the partition that has the fewest
    std::size_t too_few = 0;  // partitions of which fewer are in sync, and could be more
};

// A partition without a leader is told as such.
Copies count_copies(const std::vector<Client::Partitions::Copies>& partitions,
                    std::size_t min_in_sync) {
    Copies found;
    for (const Client::Partitions::Copies& one : partitions) {
        const bool is_first = &one == partitions.data();
        found.fewest = is_first ? one.replicas : std::min(found.fewest, one.replicas);
        const std::size_t needed = std::min(min_in_sync, one.replicas);
        found.too_few += one.in_sync > 0 && one.in_sync < needed ? 1 : 0;
    }
    return found;
}

std::string promises_too_much(const std::string& topic, std::size_t min_in_sync,
                              std::size_t replicas) {
    return "min.insync.replicas of " + topic + " is " + std::to_string(min_in_sync) +
           ", and it has " + std::to_string(replicas) + (replicas == 1 ? " replica" : " replicas") +
           ": Kafka before 3.7 refuses every record of it (NOT_ENOUGH_REPLICAS), a later one keeps "
           "fewer copies than that says. Give it more replicas (kafka-reassign-partitions) or a "
           "lower setting (kafka-configs --alter --topic " +
           topic + " --add-config min.insync.replicas=" + std::to_string(replicas) + ")";
}

// What of its partitions keeps records from being taken, with the remedy.
std::string trouble_of(const std::string& topic, const Client::Partitions& partitions,
                       std::size_t min_in_sync) {
    if (!partitions.fault.name.empty()) return trouble_of(topic, partitions.fault);
    const auto of_all = [&](std::size_t some) {
        return std::to_string(some) + " of the " + std::to_string(partitions.leaders.size()) +
               " partitions of " + topic;
    };
    const auto leaderless = static_cast<std::size_t>(
        std::count(partitions.leaders.begin(), partitions.leaders.end(), false));
    if (leaderless > 0) {
        return of_all(leaderless) +
               " have no leader: events of their keys wait. Mend their brokers";
    }
    const Copies copies = count_copies(partitions.copies, min_in_sync);
    if (copies.too_few > 0) {
        return of_all(copies.too_few) + " have fewer replicas in sync than min.insync.replicas (" +
               std::to_string(min_in_sync) +
               "): the brokers refuse their records, which wait. Mend the brokers that have the "
               "others";
    }
    if (min_in_sync > copies.fewest) return promises_too_much(topic, min_in_sync, copies.fewest);
    return {};
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
        const auto topic = client.open_topic(name);
        if (!topic.ok()) return topic.status();
        const Client::Partitions partitions = client.partitions(*topic, timeout);
        report.partitions = partitions.leaders.size();
        report.trouble = trouble_of(name, partitions, answer->second.min_in_sync);
    }
    return reports;
}

}  // namespace outbox::kafka
