#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "admin/server.h"

namespace outbox::dashboard {

/// Who may ask and change what.
struct GateConfig {
    std::string host;      ///< Where the page is served; besides names of this machine.
    bool loopback = true;  ///< Nobody else reaches it.
    /// The token of who may change something, read for each request that needs it, so that a file
    /// can be written anew. Null: nothing can be changed.
    std::function<Result<std::string>()> token;
};

/// A token with fewer bytes can be guessed.
inline constexpr std::size_t kMinTokenBytes = 16;

/// The token of a file. Errors: kConfigInvalid where it cannot be used, with the remedy.
[[nodiscard]] Result<std::string> read_token(const std::string& file);

/// What is said to a request that may not pass.
struct Refusal {
    unsigned status = 403;
    std::string code;  ///< "token_wrong"
    std::string text;
};

/// Nothing: the request may pass. Foreign names in Host and Origin are refused, whatever is asked;
/// a change needs the token, and so does reading where others can reach the page and there is one.
[[nodiscard]] std::optional<Refusal> refuse(const GateConfig& gate,
                                            const admin::HttpRequest& request);
/// The same for what everybody may have: the page itself.
[[nodiscard]] std::optional<Refusal> refuse_foreign(const GateConfig& gate,
                                                    const admin::HttpRequest& request);
/// Whether the request has the token.
[[nodiscard]] std::optional<Refusal> refuse_without_token(const GateConfig& gate,
                                                          const admin::HttpRequest& request);

}  // namespace outbox::dashboard
