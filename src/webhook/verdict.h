#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::webhook {

/// What an answer to an attempt, or its absence, means. Whatever is neither done nor gone is tried
/// again, 404 and 401 as well: a deploy or a key that is changed mends them.
struct Verdict {
    enum class Kind : std::uint8_t {
        kDone,     ///< 2xx.
        kGone,     ///< 410: the receiver wants no more events.
        kBusy,     ///< 429, 503: the receiver asks for a pause.
        kRefused,  ///< Any other answer; another event may fare better.
        kDown,     ///< None (address, connection, TLS, time, a proxy's 502 or 504), or our guard
                   ///< let nothing be sent.
        kOwnFault  ///< Nothing was sent, and that is not the endpoint's doing.
    };
    Kind kind = Kind::kDown;
    std::optional<std::chrono::seconds> wait = {};  ///< `Retry-After` of kBusy, bounded.
    std::string text = {};                          ///< For people, without secrets; empty: done.
};

/// `retry_after` is the header's value, or "".
[[nodiscard]] Verdict judge_answer(int status, std::string_view retry_after, std::int64_t now_s);
/// Where no answer came: what `net::word_of` and the fault's text say.
[[nodiscard]] Verdict judge_fault(std::string_view word, std::string_view text);
/// Where nothing was sent: what the guard, or the endpoint's own settings, say.
[[nodiscard]] Verdict not_sent(std::string why);
/// Where that is through our key, our files, our resolver or our limits.
[[nodiscard]] Verdict own_fault(std::string why);

}  // namespace outbox::webhook
