#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::nats {

/// One thing that the server said (docs.nats.io, "NATS client protocol").
struct Frame {
    enum class Kind : std::uint8_t { kInfo, kMessage, kPing, kPong, kOk, kError };
    Kind kind = Kind::kOk;
    std::string_view text = {};     ///< Of INFO, in JSON, and of an error, without quotes.
    std::string_view subject = {};  ///< Of a message, as the rest.
    std::string_view reply = {};
    std::string_view headers = {};  ///< From "NATS/1.0" to the empty line; empty: it has none.
    std::string_view payload = {};
};

/// Cuts what the server sends into frames. Holds one message at most, and what came with it.
class Reader {
  public:
    /// To be appended to; views of frames end with it.
    std::string& buffer();
    /// The next whole frame, whose views live until `buffer` is called; nothing: it has not come
    /// yet, or `broken` says why there never will be one.
    std::optional<Frame> next(std::string& broken);
    /// Whether more has come than what `next` has returned.
    [[nodiscard]] bool has_more() const { return at_ < buffer_.size(); }

  private:
    std::optional<Frame> message(std::string_view line, std::size_t begin, bool has_headers,
                                 std::string& broken);

    std::string buffer_;
    std::size_t at_ = 0;  // in `buffer_`: what comes next
};

/// The lines of a message's headers, one after another.
class HeaderLines {
  public:
    explicit HeaderLines(std::string_view headers);
    /// "503" of "NATS/1.0 503 No Responders"; empty: it has no status.
    [[nodiscard]] std::string_view status() const { return status_; }
    [[nodiscard]] std::string_view description() const { return description_; }
    /// False: there is none left. Lines without a colon are passed over.
    bool next(std::string_view& name, std::string_view& value);

  private:
    std::string_view rest_;
    std::string_view status_;
    std::string_view description_;
};

/// Appends a message; `headers` begins with "NATS/1.0" and ends with an empty line, or is empty.
void append_message(std::string_view subject, std::string_view reply, std::string_view headers,
                    std::string_view payload, std::string& out);

/// What the headers of every message begin with.
inline constexpr std::string_view kHeadersBegin = "NATS/1.0\r\n";

}  // namespace outbox::nats
