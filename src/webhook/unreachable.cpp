#include "webhook/unreachable.h"

#include <map>
#include <optional>

#include "webhook/address_guard.h"
#include "webhook/endpoint_url.h"

namespace outbox::webhook {
namespace {

struct Told {
    std::vector<std::string> lines;
    std::size_t more = 0;

    void add(const std::string& endpoint, const std::string& why) {
        if (lines.size() == kMaxUnreachableTold) {
            ++more;
            return;
        }
        lines.push_back("endpoint " + endpoint + " would not be sent to: " + why +
                        "; its deliveries wait meanwhile. If it is to get none: outbox webhook "
                        "disable " +
                        endpoint);
    }
};

// What its URL says by itself.
std::optional<std::string> refusal(const EndpointUrl& url, const AddressGuard& guard) {
    return url.address ? guard.refusal(url.host, *url.address) : std::nullopt;
}

}  // namespace

Result<std::vector<std::string>> unreachable_endpoints(std::span<const Endpoint> endpoints,
                                                       const Reach& reach) {
    const auto guard = AddressGuard::make(reach.allow);
    if (!guard.ok()) return guard.status();
    Told told;
    std::map<std::string, std::vector<std::string>> by_host;
    for (const Endpoint& endpoint : endpoints) {
        if (!endpoint.enabled()) continue;
        const auto url = parse_endpoint_url(endpoint.url, {.allow_http = reach.allow_http});
        if (!url.ok()) {
            told.add(endpoint.id, url.error().message);
        } else if (const auto why = refusal(*url, *guard)) {
            told.add(endpoint.id, *why);
        } else if (!url->address &&
                   (by_host.size() < kMaxHostsLookedUp || by_host.contains(url->host))) {
            by_host[url->host].push_back(endpoint.id);
        }
    }
    std::vector<std::string> hosts;
    for (const auto& [host, of_host] : by_host) hosts.push_back(host);
    for (const Resolved& one : resolve_all(hosts, {.timeout = reach.timeout}, reach.lookup)) {
        const std::string& host = hosts[one.token];
        // No thread or no resolver of this machine's for it: nobody knows.
        if (one.addresses.empty() && one.no.whose == NoAddress::Whose::kOurs) continue;
        std::string why = one.no.why;
        if (!one.addresses.empty() && guard->choose(host, one.addresses, 0, why)) continue;
        for (const std::string& endpoint : by_host[host]) told.add(endpoint, why);
    }
    if (told.more > 0) {
        told.lines.push_back("so it is with " + std::to_string(told.more) + " more endpoints");
    }
    return std::move(told.lines);
}

}  // namespace outbox::webhook
