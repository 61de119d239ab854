#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "webhook/address.h"

namespace outbox::webhook {

/// Keeps requests, whose URLs customers choose, from reaching what is inside (SSRF). It judges
/// addresses, not names: whoever owns a name chooses what it resolves to, and when. The address
/// that it gives is the one to connect to.
class AddressGuard {
  public:
    /// Only public addresses.
    AddressGuard() = default;
    /// And these, with commas or blanks between them: hosts by their exact names
    /// ("hooks.internal"), addresses and ranges ("10.1.0.0/16"). A range shorter than /8 is
    /// refused, and none but a metadata service's own address lets that through. Errors:
    /// kConfigInvalid.
    static Result<AddressGuard> make(std::string_view allowed);

    /// Why a request to `host` may not go to this address; nothing: it may.
    [[nodiscard]] std::optional<std::string> refusal(std::string_view host,
                                                     const Address& address) const;
    /// Of what the host resolved to, in that order: the address to connect to, another one at each
    /// turn. Nothing where none is allowed, with the reason.
    [[nodiscard]] std::optional<Address> choose(std::string_view host,
                                                std::span<const Address> addresses,
                                                std::uint64_t turn, std::string& why) const;

  private:
    std::vector<std::string> hosts_;
    std::vector<AddressRange> ranges_;
};

}  // namespace outbox::webhook
