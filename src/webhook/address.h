#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::webhook {

/// An address of IPv4 or IPv6.
struct Address {
    bool v6 = false;
    std::array<std::uint8_t, 16> bytes{};  ///< The first four are those of IPv4.
    bool operator==(const Address&) const = default;
};

/// "192.0.2.1", "2001:db8::1", and no other form: no octal, hexadecimal or shortened IPv4, no zone,
/// no brackets.
[[nodiscard]] std::optional<Address> parse_address(std::string_view text);
/// As `parse_address` takes it; IPv6 as RFC 5952 writes it.
[[nodiscard]] std::string to_text(const Address& address);

/// What a request to an address would reach.
enum class AddressKind : std::uint8_t {
    kPublic,
    kUnspecified,    ///< 0.0.0.0/8, ::
    kLoopback,       ///< 127.0.0.0/8, ::1
    kPrivate,        ///< 10/8, 172.16/12, 192.168/16, fc00::/7, fec0::/10
    kLinkLocal,      ///< 169.254.0.0/16, fe80::/10
    kMetadata,       ///< Where clouds tell a machine its secrets.
    kShared,         ///< 100.64.0.0/10: behind a provider's NAT.
    kMulticast,      ///< 224.0.0.0/4, ff00::/8
    kDocumentation,  ///< 192.0.2.0/24 and the like
    kTransition,     ///< 6to4, Teredo and others that carry another address in them.
    kReserved        ///< Whatever else is no address of the public Internet.
};

/// For messages: "a private address".
[[nodiscard]] std::string_view name_of(AddressKind kind);

/// By the registries of special-purpose addresses (RFC 6890 and its updates) and what clouds
/// document. An IPv4 address inside one of IPv6 (mapped, NAT64) is judged as itself; in IPv6 only
/// what is handed out for the Internet is public (2000::/3).
[[nodiscard]] AddressKind classify(const Address& address);

/// A range, "10.0.0.0/8"; a single address has all its bits.
struct AddressRange {
    Address first;
    unsigned bits = 0;
    [[nodiscard]] bool holds(const Address& address) const;
    [[nodiscard]] bool is_single() const;
};

/// "10.0.0.0/8", "fd00::/8" or an address. Nothing where it is none of them or has bits behind its
/// length.
[[nodiscard]] std::optional<AddressRange> parse_range(std::string_view text);

/// The address that is meant: that of IPv4 where `address` is mapped into IPv6 (::ffff:a.b.c.d).
[[nodiscard]] Address unmapped(const Address& address);

}  // namespace outbox::webhook
