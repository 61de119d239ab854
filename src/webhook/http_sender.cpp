#include "webhook/http_sender.h"

#include <algorithm>
#include <map>
#include <sys/epoll.h>
#include <system_error>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/system_clock.h"
#include "net/http_client.h"
#include "webhook/address_guard.h"
#include "webhook/ca_file.h"
#include "webhook/endpoint_url.h"
#include "webhook/request.h"
#include "webhook/sealed_secrets.h"
#include "webhook/signature.h"

namespace outbox::webhook {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxAnswerBytes = std::size_t{16} << 10;  // the rest is cut
constexpr milliseconds kRestTime{1'000};  // of an answer behind its status, which says all
constexpr std::int64_t kUsPerSecond = 1'000'000;
constexpr std::chrono::seconds kKeysAnewEvery{1};
// A name server that did not answer for one host and answered for another so lately is not at
// fault.
constexpr std::chrono::seconds kNameServerWorks{60};

std::int64_t now_s() {
    return core::SystemClock().wall_us() / kUsPerSecond;
}

// A descriptor that can be read while one of two can.
class EitherFd {
  public:
    explicit EitherFd(int first) : poll_(::epoll_create1(EPOLL_CLOEXEC)) {
        if (poll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
        add(first);
    }
    ~EitherFd() { ::close(poll_); }
    EitherFd(const EitherFd&) = delete;
    EitherFd& operator=(const EitherFd&) = delete;

    int with(int second) {
        if (second != second_) {
            if (second_ >= 0) ::epoll_ctl(poll_, EPOLL_CTL_DEL, second_, nullptr);
            second_ = second;
            if (second >= 0) add(second);
        }
        return poll_;
    }

  private:
    void add(int descriptor) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = descriptor;
        if (::epoll_ctl(poll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
            throw std::system_error(errno, std::generic_category(), "epoll_ctl");
        }
    }
    const int poll_;
    int second_ = -1;
};

// The signers of one endpoint, made once for as long as what is stored stays the same.
struct Opened {
    std::string sealed;
    struct One {
        Signer signer;
        std::int64_t until_s = 0;
    };
    std::vector<One> signers;
    std::uint64_t turn = 0;  // which of the host's addresses is tried: the next, after a fault
};

struct Waiting {
    EndpointUrl url;
    // Shared with the cache and with attempts under way: it may be replaced meanwhile.
    std::shared_ptr<Opened> opened;
    std::string id;
    std::string payload;
    Headers headers;
    Clock::time_point end;
};

class HttpSender final : public Sender {
  public:
    HttpSender(SenderConfig config, KeyRing keys, AddressGuard guard)
        : config_(std::move(config)),
          keys_(std::move(keys)),
          guard_(std::move(guard)),
          client_(options_of(config_)),
          resolver_({.timeout = config_.connect_timeout}, config_.lookup),
          wake_(resolver_.wake_fd()) {}

    void start(std::uint64_t token, const Endpoint& endpoint, const Delivery& delivery) override;
    void poll(milliseconds max_wait, int wake_fd, std::vector<Attempted>& out) override;
    void cancel(std::uint64_t token) override;

  private:
    static net::HttpOptions options_of(const SenderConfig& config) {
        return {.ca_file = config.ca_file,
                .http2 = true,
                .max_response_bytes = kMaxAnswerBytes,
                .cut_responses = true,
                .rest_time = kRestTime,
                // Of a "host" that is an address, behind which may be many: the limits of an
                // endpoint and of a host are the dispatcher's.
                .max_connections_per_host = config.max_connections,
                .max_connections = config.max_connections};
    }
    Result<std::shared_ptr<Opened>> open(const Endpoint& endpoint);
    void read_keys_anew();
    void give_up(std::uint64_t token, Verdict verdict);
    void no_address(std::uint64_t token, NoAddress no);
    void send(std::uint64_t token, const Waiting& what, const Address& address);
    void send_resolved();
    Attempted judge(const net::HttpOutcome& outcome);

    const SenderConfig config_;
    KeyRing keys_;
    Clock::time_point next_keys_{};  // when the file may be read anew
    const AddressGuard guard_;
    net::HttpClient client_;
    Resolver resolver_;
    EitherFd wake_;
    std::unordered_map<std::string, std::shared_ptr<Opened>> opened_;  // by endpoint's id
    std::map<std::uint64_t, Waiting> waiting_;                         // for the resolver
    std::unordered_map<std::uint64_t, std::shared_ptr<Opened>> sent_;  // by token
    std::vector<Resolved> resolved_;
    std::vector<net::HttpOutcome> outcomes_;
    std::vector<Attempted> ready_;  // without a request
    Clock::time_point name_server_worked_ = Clock::time_point::min();
};

// The signers of what is stored.
Result<std::shared_ptr<Opened>> make_opened(const KeyRing& keys, const Endpoint& endpoint) {
    const auto secrets = keys.open(endpoint.id, endpoint.secrets);
    if (!secrets.ok()) return secrets.status();
    auto opened = std::make_shared<Opened>();
    opened->sealed = endpoint.secrets;
    for (const Secret& secret : *secrets) {
        auto signer = Signer::make(secret.text);
        if (!signer.ok()) return signer.status();
        opened->signers.push_back({std::move(*signer), secret.until_s});
    }
    return opened;
}

Result<std::shared_ptr<Opened>> HttpSender::open(const Endpoint& endpoint) {
    const auto known = opened_.find(endpoint.id);
    if (known != opened_.end() && known->second->sealed == endpoint.secrets) return known->second;
    if (!keys_.knows(endpoint.secrets)) read_keys_anew();
    auto opened = make_opened(keys_, endpoint);
    if (!opened.ok()) return opened;
    if (opened_.size() >= kMaxEndpoints) opened_.clear();  // of those that are gone, too
    opened_.insert_or_assign(endpoint.id, *opened);
    return opened;
}

// A key may have been added since. One that cannot be read is about to be written.
void HttpSender::read_keys_anew() {
    if (Clock::now() < next_keys_) return;
    next_keys_ = Clock::now() + kKeysAnewEvery;
    if (auto keys = KeyRing::read(config_.key_file); keys.ok()) keys_ = std::move(*keys);
}

void HttpSender::give_up(std::uint64_t token, Verdict verdict) {
    ready_.push_back({token, 0, std::move(verdict)});
}

// Where no name server answers for anybody that is no endpoint's fault.
void HttpSender::no_address(std::uint64_t token, NoAddress no) {
    using Whose = NoAddress::Whose;
    const bool ours =
        no.whose == Whose::kOurs ||
        (no.whose == Whose::kNobody && Clock::now() >= name_server_worked_ + kNameServerWorks);
    give_up(token, ours ? own_fault(std::move(no.why)) : not_sent(std::move(no.why)));
}

void HttpSender::start(std::uint64_t token, const Endpoint& endpoint, const Delivery& delivery) {
    auto url = parse_endpoint_url(endpoint.url, {.allow_http = config_.allow_http});
    if (!url.ok()) return give_up(token, not_sent(url.error().message));
    auto opened = open(endpoint);
    if (!opened.ok()) return give_up(token, own_fault(opened.error().message));
    Waiting what{std::move(*url),
                 std::move(*opened),
                 webhook_id(delivery.event_id),
                 delivery.payload,
                 event_headers(delivery.headers),
                 Clock::now() + config_.timeout};
    add_content_type(what.payload, what.headers);
    what.headers.emplace_back("user-agent", config_.user_agent);
    if (what.url.address) {
        if (auto why = guard_.refusal(what.url.host, *what.url.address)) {
            return give_up(token, not_sent(std::move(*why)));
        }
        return send(token, what, *what.url.address);
    }
    resolver_.start(token, what.url.host);
    waiting_.emplace(token, std::move(what));
}

void HttpSender::send(std::uint64_t token, const Waiting& what, const Address& address) {
    const std::int64_t now = now_s();
    std::vector<const Signer*> signers;
    for (const auto& [signer, until_s] : what.opened->signers) {
        if (until_s == 0 || until_s > now) signers.push_back(&signer);
    }
    if (signers.empty()) {
        return give_up(token, own_fault("the endpoint has no secret that is in force"));
    }
    net::HttpRequest request{.method = "POST", .url = what.url.text, .headers = what.headers};
    request.headers.emplace_back("webhook-id", what.id);
    request.headers.emplace_back("webhook-timestamp", std::to_string(now));
    request.headers.emplace_back("webhook-signature",
                                 signatures(signers, what.id, now, what.payload));
    request.body = what.payload;
    request.pinned_address = to_text(unmapped(address));
    const auto left = std::chrono::duration_cast<milliseconds>(what.end - Clock::now());
    request.timeout = std::max(left, milliseconds(1));
    request.connect_timeout = std::min(config_.connect_timeout, request.timeout);
    client_.start(token, std::move(request));
    sent_.emplace(token, what.opened);
}

void HttpSender::send_resolved() {
    resolved_.clear();
    resolver_.take(resolved_);
    for (const Resolved& one : resolved_) {
        auto what = waiting_.extract(one.token);
        if (what.empty()) continue;
        if (!one.addresses.empty() || one.no.whose == NoAddress::Whose::kHost) {
            name_server_worked_ = Clock::now();
        }
        if (one.addresses.empty()) {
            no_address(one.token, one.no);
            continue;
        }
        std::string why;
        const auto address =
            guard_.choose(what.mapped().url.host, one.addresses, what.mapped().opened->turn, why);
        if (address) {
            send(one.token, what.mapped(), *address);
        } else {
            give_up(one.token, not_sent(std::move(why)));
        }
    }
}

Attempted HttpSender::judge(const net::HttpOutcome& outcome) {
    const auto sent = sent_.extract(outcome.token);
    if (!sent.empty() && outcome.status == 0) ++sent.mapped()->turn;
    // A status that came is the receiver's word, whatever broke behind it.
    if (outcome.status != 0) {
        return {outcome.token, outcome.status,
                judge_answer(outcome.status, outcome.header("retry-after"), now_s())};
    }
    const net::HttpFault fault = outcome.fault.value_or(net::HttpFault{});
    Verdict verdict = judge_fault(net::word_of(fault.kind), fault.text);
    using Fault = net::HttpFault::Kind;
    if (fault.kind == Fault::kSetting || fault.kind == Fault::kLocal ||
        fault.kind == Fault::kNoConnection) {
        verdict = own_fault(std::move(verdict.text));
    }
    return {outcome.token, 0, std::move(verdict)};
}

void HttpSender::poll(milliseconds max_wait, int wake_fd, std::vector<Attempted>& out) {
    send_resolved();
    if (!ready_.empty()) max_wait = milliseconds(0);
    if (!waiting_.empty()) {
        const auto left = std::chrono::ceil<milliseconds>(resolver_.next_end() - Clock::now());
        max_wait = std::clamp(left, milliseconds(0), max_wait);
    }
    outcomes_.clear();
    client_.poll(max_wait, outcomes_, wake_.with(wake_fd));
    send_resolved();
    out.insert(out.end(), std::make_move_iterator(ready_.begin()),
               std::make_move_iterator(ready_.end()));
    ready_.clear();
    for (const net::HttpOutcome& outcome : outcomes_) {
        if (config_.on_answer) config_.on_answer(outcome);
        out.push_back(judge(outcome));
    }
}

void HttpSender::cancel(std::uint64_t token) {
    if (waiting_.erase(token) != 0) resolver_.cancel(token);
    std::erase_if(ready_, [&](const Attempted& one) { return one.token == token; });
    sent_.erase(token);
    client_.cancel(token);
}

}  // namespace

Result<std::unique_ptr<Sender>> make_http_sender(SenderConfig config) {
    auto keys = KeyRing::read(config.key_file);
    if (!keys.ok()) return keys.status();
    auto guard = AddressGuard::make(config.allow);
    if (!guard.ok()) return guard.status();
    if (Status usable = check_ca_file(config.ca_file); !usable.ok()) return usable;
    return std::unique_ptr<Sender>(
        new HttpSender(std::move(config), std::move(*keys), std::move(*guard)));
}

Status check_sender(const SenderConfig& config, std::span<const Endpoint> endpoints) {
    if (Status made = make_http_sender(config).status(); !made.ok()) return made;
    const auto keys = KeyRing::read(config.key_file);
    if (!keys.ok()) return keys.status();
    std::size_t failed = 0;
    ErrorInfo first;
    for (const Endpoint& endpoint : endpoints) {
        if (!endpoint.enabled()) continue;
        Status opened = make_opened(*keys, endpoint).status();
        if (opened.ok()) continue;
        if (failed++ == 0) {
            first = opened.error();
            first.message = "endpoint " + endpoint.id + " cannot be signed for: " + first.message;
        }
    }
    if (failed == 0) return {};
    if (failed > 1) first.message += " (and " + std::to_string(failed - 1) + " more endpoints)";
    return first;
}

}  // namespace outbox::webhook
