#include "webhook/address_guard.h"

#include <algorithm>

#include "core/utf8.h"
#include "webhook/endpoint_url.h"

namespace outbox::webhook {
namespace {

constexpr std::string_view kBetween = ", \t\n";
constexpr unsigned kShortestRange = 8;
constexpr std::size_t kMostShown = 100;

ErrorInfo invalid(std::string_view entry, const std::string& why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "'" + to_printable(entry.substr(0, kMostShown)) + "' cannot be allowed for webhooks: " +
                why + "; give hosts by name, addresses, or ranges such as 10.1.0.0/16"};
}

}  // namespace

Result<AddressGuard> AddressGuard::make(std::string_view allowed) {
    AddressGuard guard;
    for (std::size_t at = 0; (at = allowed.find_first_not_of(kBetween, at)) != std::string::npos;) {
        const std::size_t end = std::min(allowed.find_first_of(kBetween, at), allowed.size());
        const std::string_view entry = allowed.substr(at, end - at);
        at = end;
        if (const auto range = parse_range(entry)) {
            if (range->bits < kShortestRange) return invalid(entry, "the range is too wide");
            guard.ranges_.push_back({unmapped(range->first), range->bits});
            if (guard.ranges_.back().first != range->first) {
                return invalid(entry, "write the IPv4 address that is mapped in it");
            }
            continue;
        }
        if (entry.find('/') != std::string_view::npos) {
            return invalid(entry,
                           "it is no range: bits behind its length are set, or it is no "
                           "address");
        }
        std::string host = lower_case(entry);
        if (const auto why = why_not_host_name(host)) return invalid(entry, *why);
        guard.hosts_.push_back(std::move(host));
    }
    return guard;
}

std::optional<std::string> AddressGuard::refusal(std::string_view host,
                                                 const Address& address) const {
    const AddressKind kind = classify(address);
    if (kind == AddressKind::kPublic) return std::nullopt;
    if (std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end()) return std::nullopt;
    const Address meant = unmapped(address);
    const bool in_range = std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
        return range.holds(meant) && (kind != AddressKind::kMetadata || range.is_single());
    });
    if (in_range) return std::nullopt;
    const std::string text = to_text(address);
    const bool literal = host == text;
    return (literal ? text + " is " : std::string(host) + " resolves to " + text + ", ") +
           std::string(name_of(kind)) +
           ", to which webhooks do not go; if they are meant to, name the host or its range under "
           "`allow` of the route";
}

std::optional<Address> AddressGuard::choose(std::string_view host,
                                            std::span<const Address> addresses, std::uint64_t turn,
                                            std::string& why) const {
    std::vector<Address> allowed;
    why = std::string(host) + " has no address";
    for (const Address& address : addresses) {
        if (auto refused = refusal(host, address)) {
            why = std::move(*refused);
        } else {
            allowed.push_back(address);
        }
    }
    if (allowed.empty()) return std::nullopt;
    why.clear();
    return allowed[turn % allowed.size()];
}

}  // namespace outbox::webhook
