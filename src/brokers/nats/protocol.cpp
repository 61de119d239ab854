#include "brokers/nats/protocol.h"

#include <array>
#include <charconv>

#include "core/ascii.h"

namespace outbox::nats {
namespace {

constexpr std::string_view kEnd = "\r\n";
constexpr std::size_t kMaxLine = std::size_t{1} << 20;       // INFO names all servers of a cluster
constexpr std::size_t kMaxMessage = std::size_t{128} << 20;  // the server's own bound is 64 MiB
constexpr std::size_t kCompactBytes = std::size_t{64} << 10;

// Cuts the next word off.
std::string_view take_word(std::string_view& line) {
    line = trimmed(line);
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(word.size());
    return word;
}

bool read_size(std::string_view text, std::size_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out <= kMaxMessage;
}

void append_number(std::size_t number, std::string& out) {
    std::array<char, 24> digits;
    out.append(digits.data(),
               std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

}  // namespace

std::string& Reader::buffer() {
    if (at_ == buffer_.size()) {
        buffer_.clear();
        at_ = 0;
    } else if (at_ > kCompactBytes) {
        buffer_.erase(0, at_);
        at_ = 0;
    }
    return buffer_;
}

std::optional<Frame> Reader::next(std::string& broken) {
    const std::size_t end = buffer_.find(kEnd, at_);
    if (end == std::string::npos) {
        if (buffer_.size() - at_ > kMaxLine) broken = "a line without an end";
        return std::nullopt;
    }
    std::string_view line = std::string_view(buffer_).substr(at_, end - at_);
    const std::string_view whole = line;
    const std::size_t behind = end + kEnd.size();
    const std::string_view word = take_word(line);
    if (word == "MSG" || word == "HMSG") return message(line, behind, word == "HMSG", broken);
    Frame frame;
    if (word == "INFO") {
        frame = {.kind = Frame::Kind::kInfo, .text = trimmed(line)};
    } else if (word == "PING") {
        frame.kind = Frame::Kind::kPing;
    } else if (word == "PONG") {
        frame.kind = Frame::Kind::kPong;
    } else if (word == "-ERR") {
        std::string_view text = trimmed(line);
        if (text.starts_with('\'')) text.remove_prefix(1);
        if (text.ends_with('\'')) text.remove_suffix(1);
        frame = {.kind = Frame::Kind::kError, .text = text};
    } else if (word != "+OK") {
        broken = "it sent '" + std::string(whole.substr(0, 40)) + "'";
        return std::nullopt;
    }
    at_ = behind;
    return frame;
}

// "subject sid [reply] [bytes of headers] bytes of all"
std::optional<Frame> Reader::message(std::string_view line, std::size_t begin, bool has_headers,
                                     std::string& broken) {
    std::array<std::string_view, 5> words;
    std::size_t count = 0;
    while (count < words.size() && !(words[count] = take_word(line)).empty()) ++count;
    const std::size_t sizes = has_headers ? 2 : 1;
    const bool has_reply = count == 3 + sizes;
    std::size_t headers = 0;
    std::size_t all = 0;
    if ((!has_reply && count != 2 + sizes) || !trimmed(line).empty() ||
        !read_size(words[count - 1], all) ||
        (has_headers && !read_size(words[count - 2], headers)) || headers > all) {
        broken = "it sent a message with a strange first line";
        return std::nullopt;
    }
    if (buffer_.size() < begin + all + kEnd.size()) return std::nullopt;
    const std::string_view body = std::string_view(buffer_).substr(begin, all);
    if (buffer_.compare(begin + all, kEnd.size(), kEnd) != 0) {
        broken = "it sent a message of another length than it said";
        return std::nullopt;
    }
    at_ = begin + all + kEnd.size();
    return Frame{.kind = Frame::Kind::kMessage,
                 .text = {},
                 .subject = words[0],
                 .reply = has_reply ? words[2] : std::string_view(),
                 .headers = body.substr(0, headers),
                 .payload = body.substr(headers)};
}

HeaderLines::HeaderLines(std::string_view headers) : rest_(headers) {
    std::string_view first = rest_.substr(0, rest_.find(kEnd));
    rest_.remove_prefix(std::min(rest_.size(), first.size() + kEnd.size()));
    take_word(first);
    status_ = take_word(first);
    description_ = trimmed(first);
}

bool HeaderLines::next(std::string_view& name, std::string_view& value) {
    while (!rest_.empty()) {
        const std::string_view line = rest_.substr(0, rest_.find(kEnd));
        rest_.remove_prefix(std::min(rest_.size(), line.size() + kEnd.size()));
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos) continue;
        name = line.substr(0, colon);
        value = trimmed(line.substr(colon + 1));
        return true;
    }
    return false;
}

void append_message(std::string_view subject, std::string_view reply, std::string_view headers,
                    std::string_view payload, std::string& out) {
    out += headers.empty() ? "PUB " : "HPUB ";
    out += subject;
    out += ' ';
    if (!reply.empty()) {
        out += reply;
        out += ' ';
    }
    if (!headers.empty()) {
        append_number(headers.size(), out);
        out += ' ';
    }
    append_number(headers.size() + payload.size(), out);
    out += kEnd;
    out += headers;
    out += payload;
    out += kEnd;
}

}  // namespace outbox::nats
