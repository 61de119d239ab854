#include "brokers/pulsar/brokers.h"

#include <algorithm>
#include <utility>

namespace outbox::pulsar {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kProxied = " by proxy";
constexpr milliseconds kLookForArrived{5};

}  // namespace

Brokers::Brokers(const PulsarConfig& config, std::unique_ptr<Connection> first)
    : config_(config), first_(std::move(first)) {}

Brokers::~Brokers() = default;

std::string Brokers::key_of(const net::Host& host, bool through_proxy) {
    const bool is_v6 = host.name.find(':') != std::string::npos;
    std::string key = is_v6 ? "[" + host.name + "]" : host.name;
    key += ":" + std::to_string(host.port);
    if (through_proxy) key += kProxied;
    return key;
}

Connection* Brokers::get(const net::Host& host, bool through_proxy) {
    const std::string key = key_of(host, through_proxy);
    const auto [found, is_new] = others_.try_emplace(key);
    Other& other = found->second;
    if (!is_new) return other.connection.get();
    const net::Host reached = through_proxy ? first_->host() : host;
    const std::string proxy_to = through_proxy ? key_of(host, false) : std::string();
    other.coming = std::async(std::launch::async, [config = config_, reached, proxy_to] {
        return Connection::open(config, reached, proxy_to);
    });
    return nullptr;
}

std::vector<Brokers::Arrived> Brokers::take_arrived() {
    std::vector<Arrived> arrived;
    for (auto one = others_.begin(); one != others_.end();) {
        Other& other = one->second;
        const bool is_there = other.coming.valid() &&
                              other.coming.wait_for(milliseconds(0)) == std::future_status::ready;
        if (!is_there) {
            ++one;
            continue;
        }
        auto opened = other.coming.get();
        if (opened.ok()) {
            other.connection = std::move(*opened);
            arrived.push_back({.key = one->first, .connection = other.connection.get()});
            ++one;
        } else {
            arrived.push_back({.key = one->first, .error = opened.error()});
            one = others_.erase(one);
        }
    }
    return arrived;
}

bool Brokers::expects_any() const {
    return std::any_of(others_.begin(), others_.end(),
                       [](const auto& other) { return other.second.coming.valid(); });
}

void Brokers::for_each(const std::function<void(Connection&)>& act) {
    act(*first_);
    std::vector<Connection*> standing;  // `act` may close some
    for (const auto& [key, other] : others_) {
        if (other.connection != nullptr) standing.push_back(other.connection.get());
    }
    for (Connection* connection : standing) act(*connection);
}

void Brokers::close(const Connection& connection) {
    std::erase_if(others_, [&](const auto& other) {
        if (other.second.connection.get() != &connection) return false;
        heard_of_closed_ += connection.heard();
        return true;
    });
}

std::size_t Brokers::unsent() const {
    std::size_t bytes = first_->unsent();
    for (const auto& [key, other] : others_) {
        if (other.connection != nullptr) bytes += other.connection->unsent();
    }
    return bytes;
}

std::uint64_t Brokers::heard() const {
    std::uint64_t bytes = heard_of_closed_ + first_->heard();
    for (const auto& [key, other] : others_) {
        if (other.connection != nullptr) bytes += other.connection->heard();
    }
    return bytes;
}

void Brokers::wait(milliseconds most) const {
    std::vector<const net::Socket*> sockets{&first_->socket()};
    for (const auto& [key, other] : others_) {
        if (other.connection != nullptr) sockets.push_back(&other.connection->socket());
    }
    net::Socket::wait_for_any(sockets, expects_any() ? std::min(most, kLookForArrived) : most);
}

}  // namespace outbox::pulsar
