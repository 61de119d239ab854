#include "databases/postgres/hosts.h"

#include <algorithm>
#include <chrono>
#include <libpq-fe.h>
#include <map>
#include <memory>
#include <string_view>

#include "core/mutex.h"

namespace outbox::postgres {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough for all connections of a term, short enough that a host that is back is used again.
constexpr std::chrono::seconds kAskedLastFor{30};

using Times = std::map<std::string, Clock::time_point>;

struct Noted {
    core::Mutex mutex;
    Times silent OUTBOX_GUARDED_BY(mutex);
    Times refused OUTBOX_GUARDED_BY(mutex);  // whether or not it answers
};

Noted& noted() {
    static Noted hosts;
    return hosts;
}

std::string name_of(const Host& host) {
    return host.host + "\n" + host.hostaddr + "\n" + host.port;
}

bool is_recent(const Times& times, const Host& host) {
    const auto found = times.find(name_of(host));
    return found != times.end() && Clock::now() - found->second < kAskedLastFor;
}

bool is_asked_last(const Host& host) {
    Noted& hosts = noted();
    const core::Lock lock(hosts.mutex);
    return is_recent(hosts.silent, host) || is_recent(hosts.refused, host);
}

using Options = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

std::string value_of(const Options& options, std::string_view keyword) {
    for (const PQconninfoOption* one = options.get(); one != nullptr && one->keyword != nullptr;
         ++one) {
        if (one->keyword == keyword && one->val != nullptr) return one->val;
    }
    return {};
}

// Of libpq, where the URL names none: PGPORT, or 5432.
std::string default_port() {
    return value_of(Options(PQconndefaults(), PQconninfoFree), "port");
}

std::vector<std::string> parts_of(std::string_view list) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t comma = list.find(',');
        parts.emplace_back(list.substr(0, comma));
        if (comma == std::string_view::npos) return parts;
        list.remove_prefix(comma + 1);
    }
}

}  // namespace

std::string address_of(const std::string& url) {
    const Options options(PQconninfoParse(url.c_str(), nullptr), PQconninfoFree);
    if (!options) return {};
    std::string address;
    for (const std::string_view part :
         {"host", "hostaddr", "port", "service", "dbname", "user", "options"}) {
        address += value_of(options, part) + "\n";
    }
    return address;
}

std::vector<Host> hosts_of(const std::string& url) {
    const Options options(PQconninfoParse(url.c_str(), nullptr), PQconninfoFree);
    if (!options) return {};
    const auto value = [&](std::string_view keyword) { return value_of(options, keyword); };
    if (value("target_session_attrs") == "prefer-standby") return {};
    const std::vector<std::string> names = parts_of(value("host"));
    const std::vector<std::string> addresses = parts_of(value("hostaddr"));
    const std::vector<std::string> ports = parts_of(value("port"));
    const std::size_t count = std::max(names.size(), addresses.size());
    // Lists that do not fit each other are libpq's to refuse; what is given once goes for all. Nor
    // is there a name or an address for what libpq takes where one of several is empty.
    const auto fits = [count](const std::vector<std::string>& list, bool once) {
        return list.size() == count || (list.size() == 1 && (once || list.front().empty()));
    };
    const auto has_gaps = [](const std::vector<std::string>& list) {
        return list.size() > 1 && std::ranges::count(list, "") > 0;
    };
    if (count < 2 || !fits(names, false) || !fits(addresses, false) || !fits(ports, true) ||
        has_gaps(names) || has_gaps(addresses)) {
        return {};
    }
    const auto at = [](const std::vector<std::string>& list, std::size_t index) {
        return list.size() == 1 ? list.front() : list[index];
    };
    std::vector<Host> hosts;
    for (std::size_t i = 0; i < count; ++i) {
        hosts.push_back({at(names, i), at(addresses, i), at(ports, i)});
        // An empty parameter would leave the URL's list of ports in force.
        if (hosts.back().port.empty()) hosts.back().port = default_port();
    }
    std::ranges::stable_partition(hosts, [](const Host& host) { return !is_asked_last(host); });
    return hosts;
}

void note_answer(const Host& host, bool answered) {
    Noted& hosts = noted();
    const core::Lock lock(hosts.mutex);
    if (answered) {
        hosts.silent.erase(name_of(host));
    } else {
        hosts.silent[name_of(host)] = Clock::now();
    }
}

void note_refused(const Host& host) {
    Noted& hosts = noted();
    const core::Lock lock(hosts.mutex);
    hosts.refused[name_of(host)] = Clock::now();
}

}  // namespace outbox::postgres
