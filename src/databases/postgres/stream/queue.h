#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace outbox::postgres {

/// Messages of the stream, one behind the other.
class StreamQueue {
  public:
    void add(std::string_view message);
    void append(const StreamQueue& other);
    /// The next message, valid until the next change; null `data()`: none is left.
    [[nodiscard]] std::string_view front() const;
    void pop();
    [[nodiscard]] bool empty() const { return next_ == ends_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_.size() - begin_; }
    void clear();
    void swap(StreamQueue& other) noexcept;

  private:
    std::vector<char> bytes_;
    std::vector<std::size_t> ends_;
    std::size_t next_ = 0;
    std::size_t begin_ = 0;  // of the next message
};

}  // namespace outbox::postgres
