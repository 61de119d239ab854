#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace outbox::app {

/// What may wait for a server that does not answer, on a thread of its own: signals are heard.
template <typename T>
struct Errand {
    std::future<void> ended;
    std::shared_ptr<std::optional<T>> found;  ///< The thread, which may outlast us, writes it.

    [[nodiscard]] bool is_over() const {
        return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
};

template <typename T>
Errand<T> send(std::function<T()> work) {
    std::promise<void> ended;
    Errand<T> errand{ended.get_future(), std::make_shared<std::optional<T>>()};
    std::thread([work = std::move(work), found = errand.found, ended = std::move(ended)]() mutable {
        found->emplace(work());
        // Nothing of it is held any more by then.
        found.reset();
        work = nullptr;
        ended.set_value();
    }).detach();
    return errand;
}

}  // namespace outbox::app
