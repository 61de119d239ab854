#include "relay/tenants.h"

#include <algorithm>
#include <cstdint>

namespace outbox::relay {

// table[/tenant,...], with a backslash before a comma that belongs to a tenant.
std::string source_name(std::string table, std::vector<std::string> tenants) {
    std::sort(tenants.begin(), tenants.end());
    for (const std::string& tenant : tenants) {
        table += &tenant == tenants.data() ? '/' : ',';
        for (const char c : tenant) {
            if (c == ',' || c == '\\') table += '\\';
            table += c;
        }
    }
    return table;
}

std::vector<std::string> tenants_of(std::string_view source, std::string_view table) {
    std::vector<std::string> out;
    if (source.size() <= table.size()) return out;
    out.emplace_back();
    for (std::size_t i = table.size() + 1; i < source.size(); ++i) {
        if (source[i] == ',') {
            out.emplace_back();
            continue;
        }
        if (source[i] == '\\' && i + 1 < source.size()) ++i;
        out.back() += source[i];
    }
    return out;
}

bool overlap(const std::vector<std::string>& one, const std::vector<std::string>& other) {
    if (one.empty() || other.empty()) return true;
    return std::any_of(one.begin(), one.end(), [&](const std::string& tenant) {
        return std::find(other.begin(), other.end(), tenant) != other.end();
    });
}

bool covers(const std::vector<std::string>& all, const std::vector<std::string>& some) {
    if (all.empty()) return true;
    if (some.empty()) return false;
    return std::all_of(some.begin(), some.end(), [&](const std::string& tenant) {
        return std::find(all.begin(), all.end(), tenant) != all.end();
    });
}

std::string tenant_arguments(const std::vector<std::string>& tenants) {
    constexpr std::string_view kSpecial = " \t\n!\"#$&'()*;<=>?[\\]^`{|}~";
    std::string out;
    for (const std::string& tenant : tenants) {
        out += " --tenant ";
        if (!tenant.empty() && tenant.find_first_of(kSpecial) == std::string::npos) {
            out += tenant;
            continue;
        }
        out += '\'';
        for (const char c : tenant) {
            if (c == '\'') out += "'\\'";
            out += c;
        }
        out += '\'';
    }
    return out;
}

std::string whose_arguments(std::string_view source, std::string_view table) {
    const auto tenants = tenants_of(source, table);
    return tenant_arguments(tenants.empty() ? std::vector<std::string>{""} : tenants);
}

std::string audited_route(const std::string& route, const std::vector<std::string>& tenants) {
    return "route " + route + tenant_arguments(tenants);
}

std::vector<std::string> whose_route(const std::string& route, const std::string& source,
                                     const std::string& table, const std::vector<HeldRoute>& held) {
    const auto ours = tenants_of(source, table);
    const bool is_new = std::none_of(held.begin(), held.end(),
                                     [&](const HeldRoute& one) { return one.source == source; });
    const auto holders = std::count_if(held.begin(), held.end(),
                                       [&](const HeldRoute& one) { return one.route == route; });
    std::vector<std::string> out;
    for (const HeldRoute& one : held) {
        if (one.route != route) continue;
        const auto theirs = tenants_of(one.source, table);
        // As they are taken over; a new one inherits from those that serve others, too.
        const bool met =
            one.source == source || covers(ours, theirs) || (is_new && overlap(ours, theirs));
        if (!met) continue;
        out.push_back(holders == 1 ? tenant_arguments(theirs) : whose_arguments(one.source, table));
    }
    return out;
}

ErrorInfo tenants_are_served(const std::string& source, const std::string& former,
                             const std::string& owner) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "relay " + owner + " (host:process) serves " + former +
                ", and so some of the tenants of " + source +
                ": two relays would publish the same events. Stop it first, or name other tenants"};
}

ErrorInfo tenants_left_open(const std::string& source, const std::string& former,
                            const std::string& whose) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "a relay served " + former +
                " before, and left events that some of its routes have finished and others not; " +
                source +
                " is a part of it and would send them again to all. Start it once more with the "
                "tenants of before until no event waits (outbox status), or give up a route that "
                "is gone: outbox routes retire NAME" +
                whose};
}

std::string tenants_taken_over(const std::string& source, const std::string& former,
                               std::int64_t dead_letters) {
    return source + " goes on with what a relay of " + former + " left" +
           (dead_letters == 0 ? std::string()
                              : ", " + std::to_string(dead_letters) + " dead letters among it");
}

}  // namespace outbox::relay
