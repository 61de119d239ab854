#include "tests/simulation/fiber.h"

#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <utility>

#include "tests/support/sanitizer.h"

#if OUTBOX_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace outbox::simulation {

namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

void leave_stack([[maybe_unused]] void** fake, [[maybe_unused]] const void* to,
                 [[maybe_unused]] std::size_t bytes) {
#if OUTBOX_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(fake, to, bytes);
#endif
}

void arrive([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
            [[maybe_unused]] std::size_t* bytes) {
#if OUTBOX_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(fake, from, bytes);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<char[]>(kStackBytes)) {
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get();
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    // makecontext passes ints only.
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() = default;

void Fiber::enter(unsigned high, unsigned low) {
    const auto self = (static_cast<std::uintptr_t>(high) << 32) | low;
    reinterpret_cast<Fiber*>(self)->run();  // NOLINT(performance-no-int-to-ptr): makecontext's
}

void Fiber::run() {
    arrive(nullptr, &resumer_stack_, &resumer_stack_bytes_);
    body_();
    finished_ = true;
    leave_stack(nullptr, resumer_stack_, resumer_stack_bytes_);
    swapcontext(&own_, &resumer_);
}

// As the C++ ABI has them: https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html, 2.2.2.
Fiber::Exceptions Fiber::exchange(Exceptions now) {
    void* const globals = abi::__cxa_get_globals();
    Exceptions before;
    std::memcpy(&before, globals, sizeof before);
    std::memcpy(globals, &now, sizeof now);
    return before;
}

void Fiber::resume() {
    void* fake = nullptr;
    const Exceptions resumers = exchange(exceptions_);
    leave_stack(&fake, stack_.get(), kStackBytes);
    swapcontext(&resumer_, &own_);
    arrive(fake, nullptr, nullptr);
    exceptions_ = exchange(resumers);
}

void Fiber::suspend() {
    leave_stack(&own_fake_stack_, resumer_stack_, resumer_stack_bytes_);
    swapcontext(&own_, &resumer_);
    arrive(own_fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
}

}  // namespace outbox::simulation
