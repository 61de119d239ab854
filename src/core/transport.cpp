#include "core/transport.h"

#include <algorithm>
#include <charconv>

#include "core/url.h"

namespace outbox {
namespace {

std::string host_of(std::string_view part) {
    if (part.starts_with('[')) return std::string(part.substr(1, part.find(']') - 1));
    return percent_decode(part.substr(0, part.find(':')));
}

template <typename Test>
bool any_of_list(std::string_view list, Test&& test) {
    while (true) {
        const auto end = list.find(',');
        if (test(list.substr(0, end))) return true;
        if (end == std::string_view::npos) return false;
        list.remove_prefix(end + 1);
    }
}

}  // namespace

bool is_remote(std::string_view host) {
    return !(host.empty() || host.starts_with('/') || host.starts_with('@') ||
             host == "localhost" || host.starts_with("127.") || host == "::1");
}

bool any_remote(std::string_view authority) {
    return any_of_list(authority, [](std::string_view part) { return is_remote(host_of(part)); });
}

std::vector<std::pair<std::string, std::uint16_t>> hosts_of(std::string_view list,
                                                            std::uint16_t default_port) {
    std::vector<std::pair<std::string, std::uint16_t>> hosts;
    any_of_list(list, [&](std::string_view part) {
        const std::string host = host_of(part);
        if (host.empty() || host.starts_with('/') || host.starts_with('@')) return false;
        std::uint16_t port = default_port;
        const auto colon = part.rfind(':');
        if (colon != std::string_view::npos && part.find(']', colon) == std::string_view::npos) {
            std::from_chars(part.data() + colon + 1, part.data() + part.size(), port);
        }
        hosts.emplace_back(host, port);
        return false;
    });
    return hosts;
}

}  // namespace outbox
