#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace outbox::app {

/// The alternate screen of the terminal that stdout is, its keys unread by the shell. Whatever ends
/// the process puts the terminal back, signals of a crash included. Ctrl-Z does, too, and the
/// screen is there again when the process goes on. One at a time; used by one thread, made before
/// others are: signals go to who waits.
class Screen {
  public:
    enum class Event : std::uint8_t {
        kNothing,  ///< The time is over.
        kReady,    ///< The file descriptor that was given can be read.
        kResized,
        kQuit,  ///< q, Ctrl-C, SIGTERM, SIGHUP, or the terminal is gone.
    };
    struct Size {
        std::size_t columns = 80;
        std::size_t rows = 24;
    };

    Screen();
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;
    ~Screen();

    [[nodiscard]] static Size size();
    /// Shows these lines and nothing else; they must fit.
    void draw(const std::vector<std::string>& lines);
    /// Blocks up to `timeout`.
    Event wait(int descriptor, std::chrono::milliseconds timeout);

  private:
    Event read_keys();
    bool reads_keys_ = false;
    bool gone_ = false;
};

}  // namespace outbox::app
