#include "webhook/resolver.h"

#include <algorithm>
#include <array>
#include <deque>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/mutex.h"

namespace outbox::webhook {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAnswered = 100'000;  // hosts that are remembered

struct FreeAddresses {
    void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

Address address_of(const sockaddr* from) {
    Address address;
    address.v6 = from->sa_family == AF_INET6;
    if (address.v6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(from);
        std::copy_n(std::begin(v6->sin6_addr.s6_addr), address.bytes.size(), address.bytes.begin());
    } else {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(from);
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&v4->sin_addr.s_addr);
        std::copy_n(bytes, sizeof v4->sin_addr.s_addr, address.bytes.begin());
    }
    return address;
}

NoAddress::Whose whose(int error) {
    switch (error) {
        case EAI_MEMORY:
        case EAI_SYSTEM:
        case EAI_BADFLAGS:
        case EAI_SOCKTYPE:
            return NoAddress::Whose::kOurs;
        case EAI_AGAIN:
            return NoAddress::Whose::kNobody;
        default:
            return NoAddress::Whose::kHost;
    }
}

}  // namespace

std::vector<Address> system_lookup(const std::string& host, NoAddress& no) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error != 0) {
        no = {whose(error), host + " has no address: " + ::gai_strerror(error)};
        return {};
    }
    const std::unique_ptr<addrinfo, FreeAddresses> list(found);
    std::vector<Address> addresses;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        if (one->ai_family == AF_INET || one->ai_family == AF_INET6) {
            addresses.push_back(address_of(one->ai_addr));
        }
    }
    return addresses;
}

struct Resolver::Asked {
    std::uint64_t token = 0;
    std::string host;
    Clock::time_point end;
};

struct Resolver::Shared {
    struct Answer {
        std::string host;
        std::vector<Address> addresses;
        NoAddress no;
    };
    struct UnderWay {
        std::string host;
        Clock::time_point began;
    };
    struct Lane {
        std::deque<std::string> waiting;  // hosts without a thread yet
        std::vector<UnderWay> under_way;  // each with a thread
    };

    Shared(const ResolverOptions& what, Lookup how)
        : options(what), lookup(std::move(how)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (wake < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    ~Shared() { ::close(wake); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    [[nodiscard]] Clock::duration slow() const { return options.timeout / 5; }
    [[nodiscard]] std::optional<std::string> next(Lane& lane) const;
    [[nodiscard]] const UnderWay* find(const std::string& host) const OUTBOX_REQUIRES(mutex);
    [[nodiscard]] bool waits(const std::string& host) const OUTBOX_REQUIRES(mutex);
    void run(std::size_t lane, std::string host);

    const ResolverOptions options;
    const Lookup lookup;
    const int wake;
    core::Mutex mutex;
    std::array<Lane, kLanes> lanes OUTBOX_GUARDED_BY(mutex);
    std::vector<Answer> answers OUTBOX_GUARDED_BY(mutex);
};

// The next host of a lane, which is under way from now on; nothing: none may be.
std::optional<std::string> Resolver::Shared::next(Lane& lane) const {
    const auto now = Clock::now();
    const auto quick = std::count_if(lane.under_way.begin(), lane.under_way.end(),
                                     [&](const UnderWay& one) { return now - one.began < slow(); });
    if (lane.waiting.empty() || lane.under_way.size() >= options.max_hanging ||
        static_cast<std::size_t>(quick) >= options.max_threads) {
        return std::nullopt;
    }
    std::string host = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    lane.under_way.push_back({host, now});
    return host;
}

const Resolver::Shared::UnderWay* Resolver::Shared::find(const std::string& host) const {
    for (const Lane& lane : lanes) {
        for (const UnderWay& one : lane.under_way) {
            if (one.host == host) return &one;
        }
    }
    return nullptr;
}

bool Resolver::Shared::waits(const std::string& host) const {
    return std::any_of(lanes.begin(), lanes.end(), [&](const Lane& lane) {
        return std::find(lane.waiting.begin(), lane.waiting.end(), host) != lane.waiting.end();
    });
}

// Threads end when nothing waits: a lookup costs milliseconds, and most of the time there is none.
void Resolver::Shared::run(std::size_t lane, std::string host) {
    core::Lock lock(mutex);
    std::optional<std::string> next_host = std::move(host);
    while (next_host) {
        Answer answer{*std::move(next_host), {}, {}};
        lock.unlock();
        answer.addresses = lookup(answer.host, answer.no);
        lock.lock();
        std::erase_if(lanes[lane].under_way,
                      [&](const UnderWay& one) { return one.host == answer.host; });
        answers.push_back(std::move(answer));
        ::eventfd_write(wake, 1);
        next_host = next(lanes[lane]);
    }
}

Resolver::Resolver(const ResolverOptions& options, Lookup lookup)
    : options_(options), shared_(std::make_shared<Shared>(options, std::move(lookup))) {}

Resolver::~Resolver() {
    const core::Lock lock(shared_->mutex);
    for (auto& lane : shared_->lanes) lane.waiting.clear();
}

void Resolver::start(std::uint64_t token, const std::string& host) {
    asked_.push_back({token, host, Clock::now() + options_.timeout});
    {
        const core::Lock lock(shared_->mutex);
        if (shared_->find(host) != nullptr || shared_->waits(host)) return;
        shared_->lanes[answered_.contains(host) ? kAnswered : kOthers].waiting.push_back(host);
    }
    begin_waiting();
}

void Resolver::begin_waiting() {
    const core::Lock lock(shared_->mutex);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
        while (auto host = shared_->next(shared_->lanes[lane])) {
            try {
                std::thread([shared = shared_, lane, host = *host] {
                    shared->run(lane, host);
                }).detach();
            } catch (const std::system_error&) {  // the next look, or a thread that ends, takes it
                shared_->lanes[lane].under_way.pop_back();
                shared_->lanes[lane].waiting.push_front(*std::move(host));
                break;
            }
        }
    }
}

// What nobody waits for any more takes no thread from those for whom somebody does.
void Resolver::drop_unasked() {
    std::unordered_set<std::string_view> hosts;
    for (const Asked& one : asked_) hosts.insert(one.host);
    const core::Lock lock(shared_->mutex);
    for (auto& lane : shared_->lanes) {
        std::erase_if(lane.waiting, [&](const std::string& host) { return !hosts.contains(host); });
    }
}

void Resolver::learn(const std::string& host, bool answered) {
    if (!answered) {
        answered_.erase(host);
        return;
    }
    if (answered_.size() >= kMaxAnswered) answered_.clear();
    answered_.insert(host);
}

void Resolver::cancel(std::uint64_t token) {
    if (std::erase_if(asked_, [&](const Asked& one) { return one.token == token; }) > 0) {
        drop_unasked();
    }
}

void Resolver::take(std::vector<Resolved>& out) {
    std::vector<Shared::Answer> answers;
    eventfd_t count = 0;
    ::eventfd_read(shared_->wake, &count);
    const auto now = Clock::now();
    std::unordered_set<std::string> slow;  // of those whose time is over
    {
        const core::Lock lock(shared_->mutex);
        answers.swap(shared_->answers);
        for (const Asked& one : asked_) {
            if (now < one.end) break;
            const auto* under_way = shared_->find(one.host);
            if (under_way != nullptr && now - under_way->began >= shared_->slow()) {
                slow.insert(one.host);
            }
        }
    }
    for (const auto& answer : answers) {
        learn(answer.host, !answer.addresses.empty() || answer.no.whose == NoAddress::Whose::kHost);
    }
    for (const std::string& host : slow) learn(host, false);
    const auto done = std::erase_if(asked_, [&](const Asked& one) {
        const auto answer = std::find_if(answers.begin(), answers.end(),
                                         [&](const auto& known) { return known.host == one.host; });
        if (answer != answers.end()) {
            out.push_back({one.token, answer->addresses, answer->no});
        } else if (now < one.end) {
            return false;
        } else if (slow.contains(one.host)) {
            out.push_back({one.token,
                           {},
                           {NoAddress::Whose::kNobody,
                            "no name server says in time where " + one.host + " is"}});
        } else {
            out.push_back({one.token,
                           {},
                           {NoAddress::Whose::kOurs,
                            "too many lookups are under way to ask where " + one.host + " is"}});
        }
        return true;
    });
    if (done > 0) drop_unasked();
    begin_waiting();
}

int Resolver::wake_fd() const {
    return shared_->wake;
}

Clock::time_point Resolver::next_end() const {
    if (asked_.empty()) return Clock::time_point::max();
    auto end = asked_.front().end;
    const core::Lock lock(shared_->mutex);
    const auto now = Clock::now();
    for (const auto& lane : shared_->lanes) {
        if (lane.waiting.empty()) continue;
        for (const auto& one : lane.under_way) {  // then another may begin
            const auto slow = one.began + shared_->slow();
            if (slow > now) end = std::min(end, slow);
        }
    }
    return end;
}

std::vector<Resolved> resolve_all(std::span<const std::string> hosts,
                                  const ResolverOptions& options, Lookup lookup) {
    using std::chrono::milliseconds;
    constexpr std::int64_t kLongestWaitMs = 1'000;
    Resolver resolver(options, std::move(lookup));
    for (std::size_t i = 0; i < hosts.size(); ++i) resolver.start(i, hosts[i]);
    std::vector<Resolved> out;
    while (out.size() < hosts.size()) {
        const auto left = std::chrono::ceil<milliseconds>(resolver.next_end() - Clock::now());
        pollfd wake{.fd = resolver.wake_fd(), .events = POLLIN, .revents = 0};
        ::poll(&wake, 1,
               static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kLongestWaitMs)));
        resolver.take(out);
    }
    std::ranges::sort(out, {}, &Resolved::token);
    return out;
}

}  // namespace outbox::webhook
