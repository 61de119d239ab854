// One broker and one database, which nobody connects to, instead of the lists that the build
// writes.

#include "backend/backends.h"

#include <array>
#include <span>
#include <string_view>

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kBrokerSchemes{"kafka", "kafka+ssl"};
constexpr std::array<std::string_view, 1> kDatabaseSchemes{"postgresql"};
constexpr Broker kBroker{.name = "kafka",
                         .schemes = kBrokerSchemes,
                         .urls = "kafka://host:port",
                         .other_options = "any of librdkafka"};
constexpr Database kDatabase{
    .name = "postgresql", .schemes = kDatabaseSchemes, .urls = "postgresql://host/database"};
constexpr std::array<const Broker*, 1> kBrokers{&kBroker};
constexpr std::array<const Database*, 1> kDatabases{&kDatabase};

}  // namespace

std::span<const Broker* const> brokers() {
    return kBrokers;
}

std::span<const Database* const> databases() {
    return kDatabases;
}

std::span<const std::string_view> left_out() {
    return {};
}

}  // namespace outbox
