#include "brokers/nats/message.h"

#include "brokers/nats/protocol.h"
#include "core/ascii.h"
#include "net/header_line.h"

namespace outbox::nats {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kServers = "nats-";  // headers that mean something to the server

}  // namespace

std::optional<std::string> why_not_header(std::string_view name) {
    if (auto why = net::why_not_header_name(name)) return why;
    if (begins_with_word(name, kServers)) {
        return "NATS has a meaning of its own for headers that begin with Nats-, as '" +
               std::string(name) + "' does; use another name";
    }
    if (name == kKeyHeader || name == kNullHeader) {
        return "the header '" + std::string(name) + "' is the relay's; use another name";
    }
    return std::nullopt;
}

std::optional<std::string> why_not_carried(const spi::Record& record) {
    for (const spi::HeaderView& header : record.headers) {
        if (auto why = why_not_header(header.name)) return why;
    }
    return std::nullopt;
}

void write_headers(const spi::Record& record, std::string_view suffix, std::string_view stream,
                   std::string& out) {
    out = kHeadersBegin;
    if (!record.id.empty() && !suffix.empty()) {
        // An id that no line holds: the stream then drops no repeat of it.
        net::append_header_line(kIdHeader, record.id, out);
        out.insert(out.size() - kLineEnd.size(), suffix);
    }
    if (!stream.empty()) net::append_header_line(kStreamHeader, stream, out);
    if (record.key.data() != nullptr) net::append_header_line(kKeyHeader, record.key, out);
    if (record.value.data() == nullptr) net::append_header_line(kNullHeader, "true", out);
    for (const spi::HeaderView& header : record.headers) {
        net::append_header_line(header.name, header.value, out);
    }
    out += "\r\n";
}

}  // namespace outbox::nats
