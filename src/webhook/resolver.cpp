#include "webhook/resolver.h"

#include <algorithm>
#include <deque>
#include <netdb.h>
#include <netinet/in.h>
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

    explicit Shared(Lookup what)
        : lookup(std::move(what)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (wake < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    ~Shared() { ::close(wake); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    void run();

    const Lookup lookup;
    const int wake;
    core::Mutex mutex;
    std::deque<std::string> waiting OUTBOX_GUARDED_BY(mutex);  // hosts without a thread yet
    std::vector<std::string> busy OUTBOX_GUARDED_BY(mutex);    // hosts that threads look up
    std::size_t threads OUTBOX_GUARDED_BY(mutex) = 0;
    std::vector<Answer> answers OUTBOX_GUARDED_BY(mutex);
};

// Threads end when nothing waits: a lookup costs milliseconds, and most of the time there is none.
void Resolver::Shared::run() {
    core::Lock lock(mutex);
    while (!waiting.empty()) {
        Answer answer{std::move(waiting.front()), {}, {}};
        waiting.pop_front();
        busy.push_back(answer.host);
        lock.unlock();
        answer.addresses = lookup(answer.host, answer.no);
        lock.lock();
        busy.erase(std::find(busy.begin(), busy.end(), answer.host));
        answers.push_back(std::move(answer));
        ::eventfd_write(wake, 1);
    }
    --threads;
}

Resolver::Resolver(const ResolverOptions& options, Lookup lookup)
    : options_(options), shared_(std::make_shared<Shared>(std::move(lookup))) {}

Resolver::~Resolver() {
    const core::Lock lock(shared_->mutex);
    shared_->waiting.clear();
}

void Resolver::start(std::uint64_t token, const std::string& host) {
    asked_.push_back({token, host, Clock::now() + options_.timeout});
    bool another = false;
    {
        const core::Lock lock(shared_->mutex);
        const auto has = [&](const auto& hosts) {
            return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
        };
        if (has(shared_->waiting) || has(shared_->busy)) return;
        shared_->waiting.push_back(host);
        another = shared_->threads < options_.max_threads;
        if (another) ++shared_->threads;
    }
    if (!another) return;
    try {
        std::thread([shared = shared_] { shared->run(); }).detach();
    } catch (const std::system_error&) {  // the next one to start or to end takes it
        const core::Lock lock(shared_->mutex);
        --shared_->threads;
    }
}

void Resolver::cancel(std::uint64_t token) {
    std::erase_if(asked_, [&](const Asked& one) { return one.token == token; });
}

void Resolver::take(std::vector<Resolved>& out) {
    std::vector<Shared::Answer> answers;
    eventfd_t count = 0;
    ::eventfd_read(shared_->wake, &count);
    {
        const core::Lock lock(shared_->mutex);
        answers.swap(shared_->answers);
    }
    const auto now = Clock::now();
    std::erase_if(asked_, [&](const Asked& one) {
        const auto answer = std::find_if(answers.begin(), answers.end(),
                                         [&](const auto& known) { return known.host == one.host; });
        if (answer != answers.end()) {
            out.push_back({one.token, answer->addresses, answer->no});
        } else if (now >= one.end) {
            out.push_back({one.token,
                           {},
                           {NoAddress::Whose::kNobody,
                            "no name server says in time where " + one.host + " is"}});
        } else {
            return false;
        }
        return true;
    });
}

int Resolver::wake_fd() const {
    return shared_->wake;
}

Clock::time_point Resolver::next_end() const {
    return asked_.empty() ? Clock::time_point::max() : asked_.front().end;
}

}  // namespace outbox::webhook
