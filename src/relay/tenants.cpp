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

ErrorInfo tenants_are_served(const std::string& source, const std::string& former,
                             const std::string& owner) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "relay " + owner + " (host:process) serves " + former +
                ", and so some of the tenants of " + source +
                ": two relays would publish the same events. Stop it first, or name other tenants"};
}

ErrorInfo tenants_left_open(const std::string& source, const std::string& former) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "a relay served " + former +
                " before, and left events that some of its routes have finished and others not; " +
                source +
                " is a part of it and would send them again to all. Start it once more with the "
                "tenants of before until no event waits (outbox status), or give up a route that "
                "is gone: outbox routes retire NAME"};
}

std::string tenants_taken_over(const std::string& source, const std::string& former,
                               std::int64_t dead_letters) {
    return source + " goes on with what a relay of " + former + " left" +
           (dead_letters == 0 ? std::string()
                              : ", " + std::to_string(dead_letters) + " dead letters among it");
}

}  // namespace outbox::relay
