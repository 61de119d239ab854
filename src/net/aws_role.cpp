#include "net/aws_role.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <fstream>
#include <netinet/in.h>
#include <utility>

#include "core/ascii.h"
#include "core/redact.h"
#include "core/url.h"
#include "core/utf8.h"
#include "net/aws_answers.h"
#include "net/http_date.h"
#include "net/http_status.h"

namespace outbox::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long each request may take. What asks more often than once stays within `kKeyTime` of
// aws_keys.h.
constexpr milliseconds kStsTime{4'000};
constexpr milliseconds kContainerTime{2'000};
constexpr milliseconds kMachineTime{1'000};  // of three

constexpr std::size_t kMostTokenBytes = std::size_t{64} << 10;

ErrorInfo failed(const KeyGiver& giver, const std::string& cause, std::string_view remedy) {
    return {ErrorCode::kAuthFailed, Advice::kRetryDestination, "CREDENTIALS",
            redacted_line("there is no access key of " + giver.name() + ": " + cause + "; " +
                          std::string(remedy))};
}

// What a file of a token holds; nothing: it cannot be read, is empty or is no token.
std::optional<std::string> read_token(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(kMostTokenBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
        return std::isprint(static_cast<unsigned char>(c)) != 0;
    });
    if (text.empty() || text.size() == kMostTokenBytes || !printable) return std::nullopt;
    return text;
}

// What went wrong, where it is not that the answer is of another form.
std::string cause_of(const HttpOutcome& outcome) {
    if (outcome.fault) return outcome.fault->text;
    const std::string why = read_key_refusal(outcome.body);
    return "HTTP status " + std::to_string(outcome.status) + (why.empty() ? "" : ", " + why);
}

// The giver's clock decides, where its answer has the time, as this machine's may be another.
KeyGiver::Step as_step(const KeyGiver& giver, const HttpOutcome& outcome,
                       std::optional<HandedKey> handed, std::string_view remedy) {
    if (outcome.fault || outcome.status != http_status::kOk)
        return failed(giver, cause_of(outcome), remedy);
    if (!handed) {
        const std::string why = read_key_refusal(outcome.body);
        return failed(giver, why.empty() ? "the answer has no key in it" : why, remedy);
    }
    if (!handed->expires) return TemporaryKey{std::move(handed->key), std::nullopt};
    const auto ours = std::chrono::floor<seconds>(std::chrono::system_clock::now());
    const auto now = parse_http_date(outcome.header("date"), ours).value_or(ours);
    const seconds lifetime = *handed->expires - now;
    if (lifetime <= seconds(0)) {
        return failed(giver, "the one that it gives has expired",
                      "set the clocks (NTP); it is asked again");
    }
    return TemporaryKey{std::move(handed->key), lifetime};
}

// Of http://HOST or http://HOST:PORT, as libcurl reads it; empty: it is of another form.
std::string host_in_clear(std::string_view url) {
    constexpr std::string_view kScheme = "http://";
    if (!url.starts_with(kScheme)) return {};
    url.remove_prefix(kScheme.size());
    const std::string_view authority = url.substr(0, url.find_first_of("/?#"));
    const bool plain = std::all_of(authority.begin(), authority.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view(".-:[]").find(c) != std::string_view::npos;
    });
    if (!plain) return {};
    if (authority.starts_with('['))
        return std::string(authority.substr(1, authority.find(']') - 1));
    return std::string(authority.substr(0, authority.find(':')));
}

// By its address: a name such as 127.example.com is anybody's.
bool is_loopback(const std::string& host) {
    in_addr four{};
    if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return host.starts_with("127.");
    return host == "localhost" || host == "::1";
}

bool is_secure(const std::string& url) {
    return url.starts_with("https://");
}

// --- Web identity

std::string sts_url(const std::string& region) {
    for (const char* const name : {"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"}) {
        std::string url = variable(name);
        if (url.empty()) continue;
        return url.ends_with('/') ? url : url + "/";
    }
    const bool in_china = region.starts_with("cn-");
    return "https://sts." + region + (in_china ? ".amazonaws.com.cn/" : ".amazonaws.com/");
}

class WebIdentity final : public KeyGiver {
  public:
    WebIdentity(std::string file, const std::string& region)
        : file_(std::move(file)), role_(variable("AWS_ROLE_ARN")), url_(sts_url(region)) {}

    [[nodiscard]] std::string name() const override {
        return "role " + (role_.empty() ? "(none)" : to_printable(role_)) +
               " by its web identity token (STS at " + url_ + ")";
    }

    [[nodiscard]] std::string weakness() const override {
        if (is_secure(url_) || is_loopback(host_in_clear(url_))) return {};
        return "gets its access key in clear: use https:// in AWS_ENDPOINT_URL_STS";
    }

    Step begin() override {
        if (role_.empty()) {
            return failed(*this, "AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not",
                          "set both or neither");
        }
        const auto token = read_token(file_);
        if (!token) {
            return failed(*this, "the token file " + file_ + " holds no token, or cannot be read",
                          "check AWS_WEB_IDENTITY_TOKEN_FILE, and that the pod's service account "
                          "has the role's annotation");
        }
        secret_.emplace(*token);
        std::string session = variable("AWS_ROLE_SESSION_NAME");
        if (session.empty()) session = "outbox";
        return HttpRequest{.method = "POST",
                           .url = url_,
                           .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
                           .body = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" +
                                   path_part(role_) + "&RoleSessionName=" + path_part(session) +
                                   "&WebIdentityToken=" + path_part(*token),
                           .timeout = kStsTime,
                           .connect_timeout = kStsTime};
    }

    Step next(const HttpOutcome& outcome) override {
        return as_step(*this, outcome, read_assumed_role(outcome.body),
                       "check the trust policy of the role, the token, and the way to STS "
                       "(AWS_ENDPOINT_URL_STS names another)");
    }

  private:
    const std::string file_;
    const std::string role_;
    const std::string url_;
    std::optional<TemporarySecret> secret_;
};

// --- Containers

constexpr std::string_view kContainerHost = "http://169.254.170.2";
// "Container credential provider" of AWS' reference guide for SDKs and tools: where a key may come
// from in clear, beside this machine itself.
constexpr std::array<std::string_view, 3> kHostsInClear{"169.254.170.2", "169.254.170.23",
                                                        "fd00:ec2::23"};

class ContainerRole final : public KeyGiver {
  public:
    ContainerRole(const std::string& relative, std::string full)
        : relative_(!relative.empty()),
          url_(relative_ ? std::string(kContainerHost) + relative : std::move(full)),
          sound_(!relative_ || relative.starts_with('/')) {}

    [[nodiscard]] std::string name() const override {
        return "the container's role (" + redact(to_printable(url_)) + ")";
    }

    Step begin() override {
        if (Status allowed = check_url(); !allowed.ok()) return allowed.error();
        HttpRequest request{.url = url_,
                            .headers = {{"Accept", "application/json"}},
                            .timeout = kContainerTime,
                            .connect_timeout = kContainerTime};
        std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        if (!file.empty()) {
            auto read = read_token(file);
            if (!read) {
                return failed(*this,
                              "the token file " + file + " holds no token, or cannot be read",
                              "check AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
            }
            token = *std::move(read);
        }
        if (!token.empty()) {
            secret_.emplace(token);
            request.headers.emplace_back("Authorization", token);
        }
        return request;
    }

    Step next(const HttpOutcome& outcome) override {
        return as_step(*this, outcome, read_key_document(outcome.body),
                       "check that the task or the service account has a role, and the agent that "
                       "serves it");
    }

  private:
    Status check_url() const {
        if (!sound_) {
            return failed(*this, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with '/'",
                          "it is a path");
        }
        const std::string host = host_in_clear(url_);
        const bool known =
            std::find(kHostsInClear.begin(), kHostsInClear.end(), host) != kHostsInClear.end();
        if (!is_secure(url_) && !known && !is_loopback(host)) {
            return failed(
                *this, "AWS_CONTAINER_CREDENTIALS_FULL_URI would have it come from there in clear",
                "use https://, or a host of this machine, 169.254.170.2, 169.254.170.23 "
                "or [fd00:ec2::23]");
        }
        return {};
    }

    const bool relative_;
    const std::string url_;
    const bool sound_;
    std::optional<TemporarySecret> secret_;
};

// --- Machines

class MachineRole final : public KeyGiver {
  public:
    MachineRole() {
        const std::string other = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        if (!other.empty()) url_ = other;
        while (url_.ends_with('/')) url_.pop_back();
    }

    [[nodiscard]] std::string name() const override {
        return "the machine's role" + (role_.empty() ? "" : " " + role_) + " (EC2 metadata at " +
               redact(to_printable(url_)) + ")";
    }

    Step begin() override {
        role_.clear();
        token_.clear();
        return HttpRequest{.method = "PUT",
                           .url = url_ + "/latest/api/token",
                           .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "60"}},
                           .timeout = kMachineTime,
                           .connect_timeout = kMachineTime};
    }

    Step next(const HttpOutcome& outcome) override {
        const bool good = !outcome.fault && outcome.status == http_status::kOk;
        if (token_.empty()) return good ? ask_for_role(outcome) : no_token(outcome);
        if (!role_.empty())
            return as_step(*this, outcome, read_key_document(outcome.body), kRemedy);
        if (good) role_ = read_role_name(outcome.body);
        if (!role_.empty()) return get(role_);
        const bool none = good || outcome.status == http_status::kNotFound;
        return failed(*this, none ? "the machine has no role" : cause_of(outcome), kRemedy);
    }

  private:
    static constexpr std::string_view kRemedy =
        "give the machine an instance profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

    Step no_token(const HttpOutcome& outcome) const {
        if (!outcome.fault && outcome.status == http_status::kForbidden) {
            return failed(*this, "its metadata service is switched off",
                          "switch it on, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
        }
        return failed(*this, cause_of(outcome),
                      "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; on EC2, in a container, "
                      "raise the hop limit of the metadata service to 2");
    }

    Step ask_for_role(const HttpOutcome& outcome) {
        token_ = outcome.body;
        const bool word = std::all_of(token_.begin(), token_.end(), [](char c) {
            return std::isgraph(static_cast<unsigned char>(c)) != 0;
        });
        if (token_.empty() || !word) {
            token_.clear();
            return failed(*this, "the answer has no token in it",
                          "something else answers there: check AWS_EC2_METADATA_SERVICE_ENDPOINT");
        }
        secret_.emplace(token_);
        return get("");
    }

    [[nodiscard]] HttpRequest get(const std::string& role) const {
        return {.url = url_ + "/latest/meta-data/iam/security-credentials/" + path_part(role),
                .headers = {{"X-aws-ec2-metadata-token", token_}},
                .timeout = kMachineTime,
                .connect_timeout = kMachineTime};
    }

    std::string url_ = "http://169.254.169.254";
    std::string token_;
    std::string role_;
    std::optional<TemporarySecret> secret_;
};

}  // namespace

std::unique_ptr<KeyGiver> web_identity(const std::string& region) {
    std::string file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    if (file.empty()) return nullptr;
    return std::make_unique<WebIdentity>(std::move(file), region);
}

std::unique_ptr<KeyGiver> container_role() {
    const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    std::string full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative.empty() && full.empty()) return nullptr;
    return std::make_unique<ContainerRole>(relative, std::move(full));
}

std::unique_ptr<KeyGiver> machine_role() {
    if (lower(variable("AWS_EC2_METADATA_DISABLED")) == "true") return nullptr;
    return std::make_unique<MachineRole>();
}

}  // namespace outbox::net
