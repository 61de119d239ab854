#include "webhook/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <span>

namespace outbox::webhook {
namespace {

using Kind = AddressKind;

constexpr std::size_t kV4Bytes = 4;
constexpr std::size_t kV6Bytes = 16;
constexpr unsigned kByte = 8;
constexpr std::size_t kMostText = 45;  // "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"

struct Known {
    std::string_view range;
    Kind kind;
};

// The first that holds it counts.
constexpr Known kKnownV4[] = {
    // AWS, GCP, Azure, OpenStack and others; AWS containers; Alibaba; Oracle; Azure's host, which
    // is a public address by its form.
    {"169.254.169.254", Kind::kMetadata},     {"169.254.170.2", Kind::kMetadata},
    {"169.254.170.23", Kind::kMetadata},      {"100.100.100.200", Kind::kMetadata},
    {"192.0.0.192", Kind::kMetadata},         {"168.63.129.16", Kind::kMetadata},
    {"0.0.0.0/8", Kind::kUnspecified},        {"10.0.0.0/8", Kind::kPrivate},
    {"100.64.0.0/10", Kind::kShared},         {"127.0.0.0/8", Kind::kLoopback},
    {"169.254.0.0/16", Kind::kLinkLocal},     {"172.16.0.0/12", Kind::kPrivate},
    {"192.0.0.0/24", Kind::kReserved},        {"192.0.2.0/24", Kind::kDocumentation},
    {"192.88.99.0/24", Kind::kTransition},    {"192.168.0.0/16", Kind::kPrivate},
    {"198.18.0.0/15", Kind::kReserved},       {"198.51.100.0/24", Kind::kDocumentation},
    {"203.0.113.0/24", Kind::kDocumentation}, {"224.0.0.0/4", Kind::kMulticast},
    {"240.0.0.0/4", Kind::kReserved},
};

// Those of IPv4 inside IPv6 are looked at before.
constexpr Known kKnownV6[] = {
    {"fd00:ec2::254", Kind::kMetadata},
    {"fd00:ec2::23", Kind::kMetadata},
    {"fd20:ce::254", Kind::kMetadata},
    {"::", Kind::kUnspecified},
    {"::1", Kind::kLoopback},
    {"fc00::/7", Kind::kPrivate},
    {"fec0::/10", Kind::kPrivate},
    {"fe80::/10", Kind::kLinkLocal},
    {"ff00::/8", Kind::kMulticast},
    {"::/96", Kind::kTransition},           // IPv4-compatible
    {"64:ff9b:1::/48", Kind::kTransition},  // NAT64 of a network's own
    {"2001::/32", Kind::kTransition},       // Teredo
    {"2002::/16", Kind::kTransition},       // 6to4
    {"2001:db8::/32", Kind::kDocumentation},
    {"3fff::/20", Kind::kDocumentation},
    {"2001::/23", Kind::kReserved},
    {"2000::/3", Kind::kPublic},
    {"::/0", Kind::kReserved},
};

struct KnownRange {
    AddressRange range;
    Kind kind;
};

template <std::size_t Count>
std::array<KnownRange, Count> ranges_of(const Known (&known)[Count]) {
    std::array<KnownRange, Count> ranges;
    for (std::size_t i = 0; i < Count; ++i) {
        ranges[i] = {parse_range(known[i].range).value(), known[i].kind};
    }
    return ranges;
}

std::optional<Kind> find(std::span<const KnownRange> ranges, const Address& address) {
    const auto found = std::find_if(ranges.begin(), ranges.end(),
                                    [&](const auto& known) { return known.range.holds(address); });
    if (found == ranges.end()) return std::nullopt;
    return found->kind;
}

// An address of an ISATAP tunnel (RFC 5214), whichever network's it is: behind the network stands
// the host of IPv4 that gets what is sent there.
bool is_isatap(const Address& address) {
    constexpr std::array<std::uint8_t, 3> kBefore{0x00, 0x5e, 0xfe};
    const auto* const id = address.bytes.data() + kV6Bytes / 2;
    return (id[0] & ~0x02U) == 0 && std::equal(kBefore.begin(), kBefore.end(), id + 1);
}

Address v4_at(const Address& address, std::size_t offset) {
    Address inner;
    std::copy_n(address.bytes.begin() + static_cast<std::ptrdiff_t>(offset), kV4Bytes,
                inner.bytes.begin());
    return inner;
}

unsigned bits_of(const Address& address) {
    return static_cast<unsigned>(address.v6 ? kV6Bytes : kV4Bytes) * kByte;
}

}  // namespace

std::optional<Address> parse_address(std::string_view text) {
    if (text.size() > kMostText || text.find('\0') != std::string_view::npos) return std::nullopt;
    const std::string terminated(text);
    Address address;
    address.v6 = text.find(':') != std::string_view::npos;
    // Unlike inet_aton and getaddrinfo it takes four plain decimal numbers alone.
    const int family = address.v6 ? AF_INET6 : AF_INET;
    if (::inet_pton(family, terminated.c_str(), address.bytes.data()) != 1) return std::nullopt;
    return address;
}

std::string to_text(const Address& address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text.data(), text.size());
    return text.data();
}

std::string_view name_of(AddressKind kind) {
    switch (kind) {
        case Kind::kPublic:
            return "a public address";
        case Kind::kUnspecified:
            return "the unspecified address";
        case Kind::kLoopback:
            return "a loopback address";
        case Kind::kPrivate:
            return "a private address";
        case Kind::kLinkLocal:
            return "a link-local address";
        case Kind::kMetadata:
            return "the address of a cloud's metadata service";
        case Kind::kShared:
            return "an address behind a provider's NAT";
        case Kind::kMulticast:
            return "a multicast address";
        case Kind::kDocumentation:
            return "an address for documentation";
        case Kind::kTransition:
            return "an address of a tunnel or translator";
        case Kind::kReserved:
            break;
    }
    return "a reserved address";
}

Address unmapped(const Address& address) {
    static const AddressRange mapped = parse_range("::ffff:0:0/96").value();
    return mapped.holds(address) ? v4_at(address, kV6Bytes - kV4Bytes) : address;
}

AddressKind classify(const Address& address) {
    static const auto v4 = ranges_of(kKnownV4);
    static const auto v6 = ranges_of(kKnownV6);
    static const AddressRange nat64 = parse_range("64:ff9b::/96").value();
    Address meant = unmapped(address);
    if (nat64.holds(meant)) meant = v4_at(meant, kV6Bytes - kV4Bytes);
    if (meant.v6) {
        const Kind kind = find(v6, meant).value_or(Kind::kReserved);
        return kind == Kind::kPublic && is_isatap(meant) ? Kind::kTransition : kind;
    }
    return find(v4, meant).value_or(Kind::kPublic);
}

bool AddressRange::is_single() const {
    return bits == bits_of(first);
}

bool AddressRange::holds(const Address& address) const {
    if (address.v6 != first.v6) return false;
    const std::size_t whole = bits / kByte;
    if (!std::equal(first.bytes.begin(), first.bytes.begin() + static_cast<std::ptrdiff_t>(whole),
                    address.bytes.begin())) {
        return false;
    }
    const unsigned rest = bits % kByte;
    if (rest == 0) return true;
    const unsigned mask = (0xFFU << (kByte - rest)) & 0xFFU;
    return (first.bytes[whole] & mask) == (address.bytes[whole] & mask);
}

std::optional<AddressRange> parse_range(std::string_view text) {
    const auto slash = text.find('/');
    const auto first = parse_address(text.substr(0, slash));
    if (!first) return std::nullopt;
    AddressRange range{*first, bits_of(*first)};
    if (slash == std::string_view::npos) return range;
    const std::string_view length = text.substr(slash + 1);
    const auto [end, error] =
        std::from_chars(length.data(), length.data() + length.size(), range.bits);
    if (error != std::errc() || end != length.data() + length.size() || length.empty() ||
        range.bits > bits_of(*first)) {
        return std::nullopt;
    }
    Address other = *first;
    for (unsigned bit = range.bits; bit < bits_of(*first); ++bit) {
        const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % kByte));
        if ((other.bytes[bit / kByte] & mask) != 0) return std::nullopt;
    }
    return range;
}

}  // namespace outbox::webhook
