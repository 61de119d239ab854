#include "net/aws_keys.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace outbox::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLook{100};  // for `stop`
constexpr std::size_t kMostAnswer = std::size_t{64} << 10;
constexpr std::chrono::hours kMostLifetime{36};  // no key of a role has more
constexpr int kLastPart = 4;                     // of a life

// A key, or who gives one; neither: there is none, and none is needed.
struct Source {
    std::optional<WrittenKey> written;
    std::unique_ptr<KeyGiver> giver = nullptr;
};

Result<Source> source_of(const ServerAccess& access, const AwsLogin& login,
                         const std::string& region, const std::string& prefix) {
    auto of_url = key_of_url(access);
    if (!of_url.ok()) return of_url.error();
    if (*of_url) return Source{*std::move(of_url)};
    if (login.profile.empty() && login.credentials_file.empty()) {
        auto of_environment = key_of_environment();
        if (!of_environment.ok()) return of_environment.error();
        if (*of_environment) return Source{*std::move(of_environment)};
        if (auto giver = web_identity(region)) return Source{std::nullopt, std::move(giver)};
    }
    auto of_file = key_of_file(login);
    if (!of_file.ok()) return of_file.error();
    if (*of_file) return Source{*std::move(of_file)};
    if (auto giver = container_role()) return Source{std::nullopt, std::move(giver)};
    if (!access.tls) return Source{};
    if (auto giver = machine_role()) return Source{std::nullopt, std::move(giver)};
    return key_failed(
        "there is no access key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or " + prefix +
        "credentials_file");
}

}  // namespace

AwsKeys::AwsKeys(const ServerAccess& access, const AwsLogin& login, std::string region,
                 std::string_view prefix, Clock::time_point (*now)(), int patience)
    : access_(access),
      login_(login),
      region_(std::move(region)),
      prefix_(prefix),
      now_(now),
      patience_(patience) {}

Result<const AwsCredentials*> AwsKeys::current(const std::stop_token& stop) {
    drive();
    if (held_ && now_() >= held_->until) hold(nullptr);
    if (!held_ && !giver_) {
        if (Status found = find(); !found.ok()) return found.error();
    }
    if (!held_) {
        if (Status waited = wait(stop); !waited.ok()) return waited.error();
    }
    return held_->key ? &*held_->key : nullptr;
}

Status AwsKeys::find() {
    begun_ = now_();
    auto source = source_of(access_, login_, region_, prefix_);
    if (!source.ok()) {
        if (held_) held_->renew_at = begun_ + kKeyPause;
        failure_ = source.error();
        return source.error();
    }
    if (source->giver) {
        begin(std::move(source->giver));
        return {};
    }
    auto held = std::make_unique<Held>();
    if (source->written) {
        held->key = std::move(source->written->key);
        remember_secret(held->key->secret_key);
        if (!held->key->session_token.empty()) remember_secret(held->key->session_token);
    }
    hold(std::move(held));
    return {};
}

void AwsKeys::begin(std::unique_ptr<KeyGiver> giver) {
    giver_ = std::move(giver);
    http_.emplace(HttpOptions{.ca_file = variable("AWS_CA_BUNDLE"),
                              .max_response_bytes = kMostAnswer,
                              .max_connections_per_host = 1,
                              .max_connections = 1});
    take(giver_->begin());
}

Status AwsKeys::wait(const std::stop_token& stop) {
    const auto end = Clock::now() + patience_ * kKeyTime;
    while (giver_ && Clock::now() < end && !stop.stop_requested()) {
        outcomes_.clear();
        http_->poll(kLook, outcomes_);
        for (const HttpOutcome& outcome : outcomes_) take(giver_->next(outcome));
    }
    if (held_) return {};
    if (giver_) {
        const std::string name = giver_->name();
        giver_.reset();
        http_.reset();
        if (stop.stop_requested()) return key_failed("the relay stops");
        return key_failed("there is no access key of " + name + ": no answer within " +
                          std::to_string((patience_ * kKeyTime).count()) +
                          " ms; it is asked again");
    }
    return *failure_;
}

const ErrorInfo* AwsKeys::not_renewed() const {
    return held_ && failure_ ? &*failure_ : nullptr;
}

void AwsKeys::drive() {
    // One that holds stays in force whatever comes of its renewal.
    if (held_ && now_() >= held_->renew_at && !giver_) static_cast<void>(find());
    if (!giver_) return;
    outcomes_.clear();
    http_->poll(milliseconds(0), outcomes_);
    for (const HttpOutcome& outcome : outcomes_) take(giver_->next(outcome));
}

void AwsKeys::take(KeyGiver::Step step) {
    if (auto* request = std::get_if<HttpRequest>(&step)) {
        request->timeout *= patience_;
        request->connect_timeout *= patience_;
        http_->start(0, std::move(*request));
        return;
    }
    const auto now = now_();
    if (auto* given = std::get_if<TemporaryKey>(&step)) {
        auto held = std::make_unique<Held>();
        held->of_role = true;
        held->secret.emplace(given->key.secret_key);
        held->token.emplace(given->key.session_token);
        held->key = std::move(given->key);
        if (given->lifetime) {
            const seconds lifetime = std::min<seconds>(*given->lifetime, kMostLifetime);
            held->until = now + lifetime;
            const milliseconds margin =
                std::min<milliseconds>(kKeyMargin, milliseconds(lifetime) / kLastPart);
            held->renew_at = held->until - margin;
        }
        hold(std::move(held));
    } else {
        failure_ = std::get<ErrorInfo>(std::move(step));
        if (held_) held_->renew_at = now + kKeyPause;
    }
    giver_.reset();
    http_.reset();
}

void AwsKeys::hold(std::unique_ptr<Held> held) {
    if (held_) former_ = std::move(held_);
    held_ = std::move(held);
    if (!held_) return;
    ++number_;
    failure_.reset();
}

void AwsKeys::refused(std::uint64_t number, bool usable) {
    if (!held_ || number != number_) return;
    if (!usable || !held_->of_role) {
        hold(nullptr);
    } else {
        held_->renew_at = std::min(held_->renew_at, std::max(now_(), begun_ + kKeyPause));
    }
}

Result<std::string> origin_of_key(const ServerAccess& access, const AwsLogin& login,
                                  const std::string& region, std::string_view prefix) {
    const auto source = source_of(access, login, region, std::string(prefix));
    if (!source.ok()) return source.error();
    if (source->giver) return source->giver->name();
    return source->written ? source->written->origin : std::string("none");
}

std::string weakness_of_key(const ServerAccess& access, const AwsLogin& login,
                            const std::string& region) {
    const auto source = source_of(access, login, region, "");
    return source.ok() && source->giver ? source->giver->weakness() : std::string();
}

}  // namespace outbox::net
