#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <xxhash.h>

#include <outbox/consumer/idempotency.h>
#include <outbox/error.h>

#include "consumer/idempotency_answers.h"
#include "core/mutex.h"

namespace outbox {
namespace {

using What = IdempotentAnswer::What;
using std::chrono::milliseconds;

constexpr int kMaxConflicts = 20;
constexpr std::int64_t kMinPauseMs = 5;
constexpr std::int64_t kMaxPauseMs = 100;
constexpr std::int64_t kMaxWaitMs = 600'000;
constexpr std::chrono::seconds kMaxConflictTime{2};
constexpr int kBadRequest = 400;

bool is_key(std::string_view key) {
    return key.size() <= Idempotency::kMaxKeyBytes &&
           std::all_of(key.begin(), key.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// One transaction may be run again where the database says that it met another; not where it waited
// long to say so.
IdempotentAnswer run_work(const Idempotency::Work& work) {
    const auto start = std::chrono::steady_clock::now();
    for (int conflicts = 0;; ++conflicts) {
        try {
            return work();
        } catch (const Error& error) {
            if (error.code() != ErrorCode::kConflict || error.advice() != Advice::kRetryEvent ||
                conflicts == kMaxConflicts ||
                std::chrono::steady_clock::now() - start > kMaxConflictTime) {
                throw;
            }
        }
    }
}

}  // namespace

// The keys that are being worked on in this process: of those who wait, one asks the database.
class Idempotency::Impl {
  public:
    explicit Impl(IdempotencyOptions chosen) : options(chosen) {}

    class Hold {
      public:
        Hold(Impl& owner, std::string name) : owner_(owner), name_(std::move(name)) {}
        ~Hold() {
            {
                const core::Lock lock(owner_.mutex_);
                owner_.running_.erase(name_);
            }
            owner_.ended_.notify_all();
        }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        Impl& owner_;
        std::string name_;
    };

    bool enter(const std::string& name, milliseconds wait) {
        core::Lock lock(mutex_);
        return ended_.wait_for(mutex_, wait, [&]() OUTBOX_REQUIRES(mutex_) {
            return !running_.contains(name);
        }) && running_.emplace(name, Holder{++holders_}).second;
    }

    // For one who may not enter: there may be an answer all the same, for the one inside may be a
    // repeat itself. What the database says of it holds until it leaves.
    IdempotentAnswer ask(const std::string& name, const Work& work) {
        std::uint64_t holder = 0;
        {
            const core::Lock lock(mutex_);
            const auto found = running_.find(name);
            if (found != running_.end()) {
                if (found->second.is_first) return consumer::still_running();
                holder = found->second.number;
            }
        }
        IdempotentAnswer answer;
        try {
            answer = work();
        } catch (const Error& error) {
            if (error.code() != ErrorCode::kConflict || error.advice() != Advice::kRetryEvent) {
                throw;
            }
            return consumer::still_running();
        }
        if (answer.what == What::kRunning) {
            const core::Lock lock(mutex_);
            const auto found = running_.find(name);
            if (found != running_.end() && found->second.number == holder) {
                found->second.is_first = true;
            }
        }
        return answer;
    }

    const IdempotencyOptions options;

  private:
    core::Mutex mutex_;
    core::Condition ended_;
    struct Holder {
        std::uint64_t number = 0;
        bool is_first = false;  // the database has said so
    };
    std::uint64_t holders_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::unordered_map<std::string, Holder> running_ OUTBOX_GUARDED_BY(mutex_);
};

namespace {

std::string name_of(const IdempotentRequest& request) {
    return std::to_string(request.scope.size()) + ":" + std::string(request.scope) +
           std::string(request.key);
}

std::optional<IdempotentAnswer> refusal(const IdempotentRequest& request, bool required) {
    if (request.key.empty() && required) {
        return problem_answer(What::kRefused, kBadRequest, "The Idempotency-Key is missing",
                              "This operation needs the header Idempotency-Key: a text that is new "
                              "for each request and the same when a request is sent again.");
    }
    if (!is_key(request.key)) {
        return problem_answer(
            What::kRefused, kBadRequest, "Not an Idempotency-Key",
            "It must be 1 to 255 printable ASCII characters, for example a UUID.");
    }
    return std::nullopt;
}

}  // namespace

Idempotency::Idempotency(IdempotencyOptions options) {
    if (options.wait_ms < 0 || options.wait_ms > kMaxWaitMs) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "IdempotencyOptions::wait_ms must be 0 to 600000 (10 minutes)");
    }
    impl_ = std::make_unique<Impl>(options);
}

Idempotency::~Idempotency() = default;

IdempotentAnswer Idempotency::try_answer(const IdempotentRequest& request, const Work& work) {
    if (auto refused = refusal(request, impl_->options.required)) return *std::move(refused);
    if (request.key.empty()) return run_work(work);
    std::string name = name_of(request);
    if (!impl_->enter(name, milliseconds(0))) return impl_->ask(name, work);
    const Impl::Hold hold(*impl_, std::move(name));
    return run_work(work);
}

IdempotentAnswer Idempotency::answer(const IdempotentRequest& request, const Work& work) {
    using Clock = std::chrono::steady_clock;
    if (auto refused = refusal(request, impl_->options.required)) return *std::move(refused);
    if (request.key.empty()) return run_work(work);
    const auto start = Clock::now();
    const std::string name = name_of(request);
    while (true) {
        const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
        const std::int64_t pause = next_pause_ms(waited);
        const milliseconds left(pause == 0 ? 0 : impl_->options.wait_ms - waited);
        if (!impl_->enter(name, left)) return impl_->ask(name, work);
        {
            const Impl::Hold hold(*impl_, name);
            IdempotentAnswer answer = run_work(work);
            if (answer.what != What::kRunning) return answer;
            // Another process has it. Those who wait here wait for this one.
            const std::int64_t rest = next_pause_ms(
                std::chrono::duration_cast<milliseconds>(Clock::now() - start).count());
            if (rest == 0) return answer;
            std::this_thread::sleep_for(milliseconds(rest));
        }
    }
}

std::int64_t Idempotency::next_pause_ms(std::int64_t waited_ms) const noexcept {
    if (impl_->options.while_running == IdempotencyOptions::WhileRunning::kConflict) return 0;
    const std::int64_t left = impl_->options.wait_ms - waited_ms;
    if (left <= 0) return 0;
    constexpr std::int64_t kGrowth = 4;
    return std::min(left, std::clamp(waited_ms / kGrowth, kMinPauseMs, kMaxPauseMs));
}

std::string idempotency_key(std::optional<std::string_view> header_value) {
    if (!header_value) return {};
    std::string_view text = *header_value;
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    text = text.substr(0, text.find_last_not_of(" \t") + 1);
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        text = text.substr(1, text.size() - 2);
    }
    return text.empty() ? std::string(1, '\0') : std::string(text);
}

std::string request_fingerprint(const IdempotentRequest& request) {
    XXH3_state_t* state = XXH3_createState();
    if (state == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, request.operation.data(), request.operation.size());
    XXH3_128bits_update(state, "\n", 1);
    XXH3_128bits_update(state, request.body.data(), request.body.size());
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : bytes.digest) {
        text += kHex[byte >> 4];
        text += kHex[byte & 0xF];
    }
    return text;
}

}  // namespace outbox
