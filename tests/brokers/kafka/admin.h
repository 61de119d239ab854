#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/conformance/letters.h"

namespace outbox::test {

// What an operator does to a broker while the sink is at work. Every error throws
// std::runtime_error.

void set_max_message_bytes(const std::string& bootstrap, const std::string& topic,
                           std::size_t bytes);
// Returns when the broker no longer knows the topic.
void remove_topic(const std::string& bootstrap, const std::string& topic);
void deny_write(const std::string& bootstrap, const std::string& topic);
// As `deny_write`, but the topic can still be described, so that only writing shows it.
void deny_only_write(const std::string& bootstrap, const std::string& topic);
void deny_describing_settings(const std::string& bootstrap, const std::string& topic);
// A topic with one partition on each of these brokers. Returns when each has its leader.
void create_topic_on(const std::string& bootstrap, const std::string& topic,
                     const std::vector<int>& brokers);
// Returns when the broker says that the partition has a leader, or none.
void wait_for_leader(const std::string& bootstrap, const std::string& topic, int partition,
                     bool has_leader);
void allow_write_again(const std::string& bootstrap, const std::string& topic);

// Everything in the topic, repeats included, once `count` different ids are there or after 30 s.
std::vector<Arrived> kafka_arrived(const std::string& bootstrap, const std::string& topic,
                                   std::size_t count);

}  // namespace outbox::test
