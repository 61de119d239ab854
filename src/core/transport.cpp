#include "core/transport.h"

#include <algorithm>
#include <charconv>

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

std::string postgres_transport(const Url& url, std::string_view sslmode_default) {
    bool remote = any_remote(url.authority);
    // libpq connects to these instead.
    for (const char* name : {"host", "hostaddr"}) {
        const std::string_view hosts = url.query_value(name);
        remote = remote || any_of_list(hosts, is_remote);
    }
    if (!remote) return {};
    std::string_view mode = url.query_value("sslmode", sslmode_default);
    if (mode.empty()) mode = "prefer";
    if (mode == "verify-full") return {};
    const bool clear = mode == "disable" || mode == "allow" || mode == "prefer";
    return std::string(clear ? "may be reached in clear" : "is reached without proof who it is") +
           " (sslmode=" + std::string(mode) +
           "): write ?sslmode=verify-full&sslrootcert=FILE (or system) in the URL";
}

std::string_view refusal_remedy(std::string_view message) {
    const auto says = [&](std::string_view part) {
        return message.find(part) != std::string_view::npos;
    };
    if (says("does not match host name")) {
        return "use a host name that stands in the server's certificate; hostaddr=ADDRESS says "
               "where it is";
    }
    if (says("certificate verify failed")) {
        return "the server's certificate is of another CA than sslrootcert, or has expired: see "
               "openssl s_client -starttls postgres";
    }
    if (says("no password supplied")) {
        return "the server wants a password: give one in the URL, by password_file=, PGPASSWORD or "
               "~/.pgpass";
    }
    if (says("invalid value for parameter") || says("unrecognized configuration parameter")) {
        return "correct the options of the URL, or the settings of the role and the database";
    }
    if (says("root certificate file")) return "name the file of the server's CA: sslrootcert=FILE";
    return {};
}

}  // namespace outbox
