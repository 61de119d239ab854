#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ucontext.h>

namespace outbox::simulation {

/// A stack of its own that runs until it suspends itself: so that real code which calls blocking
/// functions can be stopped inside them and others go on, all in one thread and in a chosen order.
class Fiber {
  public:
    explicit Fiber(std::function<void()> body);
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    /// Precondition: `finished()`, or never resumed.
    ~Fiber();

    /// Runs the body until it suspends or ends. Not from within a fiber.
    void resume();
    /// Back to whoever resumed. From within this fiber only.
    void suspend();
    [[nodiscard]] bool finished() const { return finished_; }

  private:
    static void enter(unsigned high, unsigned low);
    void run();

    std::function<void()> body_;
    std::unique_ptr<char[]> stack_;
    ucontext_t own_{};
    ucontext_t resumer_{};
    bool finished_ = false;
    // What is thrown and caught is the thread's, and it is in a fiber where it happens.
    struct Exceptions {
        void* caught = nullptr;
        unsigned uncaught = 0;
    };
    static Exceptions exchange(Exceptions now);
    Exceptions exceptions_;
    // What AddressSanitizer must be told of the stacks.
    const void* resumer_stack_ = nullptr;
    std::size_t resumer_stack_bytes_ = 0;
    void* own_fake_stack_ = nullptr;
};

}  // namespace outbox::simulation
