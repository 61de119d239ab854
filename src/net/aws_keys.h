#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/redact.h"
#include "net/aws_credentials.h"
#include "net/aws_role.h"
#include "net/http_client.h"

namespace outbox::net {

/// How long `AwsKeys::current` waits at most where there is no key that holds.
constexpr std::chrono::milliseconds kKeyTime{5'000};
/// A key is renewed so long before it expires, or in the last quarter of its life where that is
/// shorter.
constexpr std::chrono::minutes kKeyMargin{5};
/// Between two renewals while the key at hand holds.
constexpr std::chrono::seconds kKeyPause{10};

/// The access key that requests are signed with. The first of these that names one decides, which
/// is the order of AWS' own SDKs: the URL; where a profile or a file was asked for in options,
/// these; the environment; its web identity; the file; the container's role; with TLS the
/// machine's.
///
/// Keys of a role are renewed beside the requests, before they expire: only where there is none
/// that holds does `current` wait. What is written somewhere is read once, and again once it was
/// refused. Secrets are known to the redactor while they may be met. Not thread-safe.
class AwsKeys {
  public:
    using Clock = std::chrono::steady_clock;

    /// `access` and `login` last longer. `prefix`: of the options in messages, "sqs.". `now`: by
    /// which keys expire. `patience`: so many times as long answers are waited for.
    AwsKeys(const ServerAccess& access, const AwsLogin& login, std::string region,
            std::string_view prefix, Clock::time_point (*now)() = Clock::now, int patience = 1);

    /// The one in force, until the next call. Null: there is none anywhere, which a server in clear
    /// may do without. Blocks up to `kKeyTime` where a role has no
    /// key that holds, else not at all; ends within 100 ms of `stop`. Errors:
    /// kAuthFailed/retry_destination, with cause and remedy.
    Result<const AwsCredentials*> current(const std::stop_token& stop = {});
    /// Which one `current` gave; another number for each.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    /// Why the one in force could not be renewed when that was last tried; null where it could, or
    /// was not tried yet.
    [[nodiscard]] const ErrorInfo* not_renewed() const;
    /// Begins the renewal that is due, and goes on with one that is under way; does not block.
    void drive();
    /// The service did not take that one. A key that may be good for something else (`usable`) is
    /// kept until its successor is there.
    void refused(std::uint64_t number, bool usable);

  private:
    struct Held {
        std::optional<AwsCredentials> key;
        bool of_role = false;
        Clock::time_point until = Clock::time_point::max();
        Clock::time_point renew_at = Clock::time_point::max();
        std::optional<TemporarySecret> secret = {};
        std::optional<TemporarySecret> token = {};
    };

    Status find();
    void begin(std::unique_ptr<KeyGiver> giver);
    Status wait(const std::stop_token& stop);
    void take(KeyGiver::Step step);
    void hold(std::unique_ptr<Held> held);

    const ServerAccess& access_;
    const AwsLogin& login_;
    const std::string region_;
    const std::string prefix_;
    Clock::time_point (*const now_)();
    const int patience_;
    std::unique_ptr<Held> held_;    // none, or one that held when it was last looked at
    std::unique_ptr<Held> former_;  // whose secrets answers may still quote
    std::uint64_t number_ = 0;
    std::unique_ptr<KeyGiver> giver_;  // where a renewal is under way
    std::optional<HttpClient> http_;
    std::optional<ErrorInfo> failure_;  // of the last renewal
    Clock::time_point begun_;           // the last renewal
    std::vector<HttpOutcome> outcomes_;
};

/// Where `AwsKeys` would have a key from: "AWS_ACCESS_KEY_ID", "role arn:... by ...", "none". No
/// secret is in it; nothing is asked. Errors: those of `AwsKeys`.
Result<std::string> origin_of_key(const ServerAccess& access, const AwsLogin& login,
                                  const std::string& region, std::string_view prefix);

/// What the way to that key has in clear, with the remedy; or "".
std::string weakness_of_key(const ServerAccess& access, const AwsLogin& login,
                            const std::string& region);

}  // namespace outbox::net
