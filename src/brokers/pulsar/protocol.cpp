#include "brokers/pulsar/protocol.h"

#include "brokers/pulsar/crc32c.h"
#include "brokers/pulsar/wire.h"

namespace outbox::pulsar {
namespace {

constexpr std::size_t kMaxFrame = std::size_t{1} << 20;  // nothing for us is that large
constexpr std::size_t kCompactBytes = std::size_t{64} << 10;
constexpr std::size_t kSizeBytes = 4;

constexpr std::string_view kClient = "outbox";
// Beyond it brokers tell clients of topics that moved to another cluster.
constexpr std::uint64_t kProtocolVersion = 19;
constexpr std::string_view kHasChecksum = "\x0E\x01";

// Of BaseCommand: the value of its type, and the field that holds the command.
enum Type : std::uint8_t {
    kConnect = 2,
    kConnected = 3,
    kProducer = 5,
    kSend = 6,
    kSendReceipt = 7,
    kSendError = 8,
    kError = 14,
    kCloseProducer = 15,
    kProducerSuccess = 17,
    kPing = 18,
    kPong = 19,
    kPartitions = 21,
    kPartitionsResponse = 22,
    kLookup = 23,
    kLookupResponse = 24
};
constexpr unsigned kTypeField = 1;

// A BaseCommand around the bytes of one command.
std::string base_command(Type type, std::string_view command) {
    std::string base;
    append_number(kTypeField, type, base);
    append_bytes(type, command, base);
    return base;
}

// A frame without a payload.
void append_frame(Type type, std::string_view command, std::string& out) {
    const std::string base = base_command(type, command);
    append_u32(static_cast<std::uint32_t>(kSizeBytes + base.size()), out);
    append_u32(static_cast<std::uint32_t>(base.size()), out);
    out += base;
}

Command::Kind kind_of(std::uint64_t type) {
    switch (type) {
        case kConnected:
            return Command::Kind::kConnected;
        case kSendReceipt:
            return Command::Kind::kReceipt;
        case kSendError:
            return Command::Kind::kSendError;
        case kError:
            return Command::Kind::kError;
        case kCloseProducer:
            return Command::Kind::kCloseProducer;
        case kProducerSuccess:
            return Command::Kind::kProducer;
        case kPartitionsResponse:
            return Command::Kind::kPartitions;
        case kLookupResponse:
            return Command::Kind::kLookup;
        case kPing:
            return Command::Kind::kPing;
        case kPong:
            return Command::Kind::kPong;
        default:
            return Command::Kind::kOther;
    }
}

void take_lookup(const Field& field, Command& command) {
    switch (field.number) {
        case 1:
            command.url = field.bytes;
            break;
        case 2:
            command.url_tls = field.bytes;
            break;
        case 3:
            command.lookup = field.value == 0   ? Command::Lookup::kRedirect
                             : field.value == 1 ? Command::Lookup::kConnect
                                                : Command::Lookup::kFailed;
            break;
        case 4:
            command.request = field.value;
            break;
        case 5:
            command.authoritative = field.value != 0;
            break;
        case 6:
            command.error = static_cast<std::uint32_t>(field.value);
            break;
        case 7:
            command.text = field.bytes;
            break;
        case 8:
            command.through_proxy = field.value != 0;
            break;
        default:
            break;
    }
}

void take_partitions(const Field& field, Command& command) {
    switch (field.number) {
        case 1:
            command.partitions = static_cast<std::uint32_t>(field.value);
            break;
        case 2:
            command.request = field.value;
            break;
        case 3:
            command.failed = field.value != 0;
            break;
        case 4:
            command.error = static_cast<std::uint32_t>(field.value);
            break;
        case 5:
            command.text = field.bytes;
            break;
        default:
            break;
    }
}

// Of receipts and errors of messages, and of CLOSE_PRODUCER.
void take_of_producer(const Field& field, Command& command) {
    if (field.number == 1) command.producer = field.value;
    if (field.number == 2) command.sequence = field.value;
    if (command.kind != Command::Kind::kSendError) return;
    if (field.number == 3) command.error = static_cast<std::uint32_t>(field.value);
    if (field.number == 4) command.text = field.bytes;
}

void take(const Field& field, Command& command) {
    switch (command.kind) {
        case Command::Kind::kConnected:
            if (field.number == 3) command.max_bytes = field.value;
            break;
        case Command::Kind::kReceipt:
        case Command::Kind::kSendError:
        case Command::Kind::kCloseProducer:
            take_of_producer(field, command);
            break;
        case Command::Kind::kError:
            if (field.number == 1) command.request = field.value;
            if (field.number == 2) command.error = static_cast<std::uint32_t>(field.value);
            if (field.number == 3) command.text = field.bytes;
            break;
        case Command::Kind::kProducer:
            if (field.number == 1) command.request = field.value;
            if (field.number == 6) command.ready = field.value != 0;
            break;
        case Command::Kind::kPartitions:
            take_partitions(field, command);
            break;
        case Command::Kind::kLookup:
            take_lookup(field, command);
            break;
        case Command::Kind::kPing:
        case Command::Kind::kPong:
        case Command::Kind::kOther:
            break;
    }
}

std::optional<Command> read_command(std::string_view bytes) {
    Fields base(bytes);
    std::uint64_t type = 0;
    std::uint64_t inner_type = 0;
    std::string_view inner;
    while (const auto field = base.next()) {
        if (field->number == kTypeField) {
            type = field->value;
        } else {
            inner_type = field->number;
            inner = field->bytes;
        }
    }
    if (base.broken()) return std::nullopt;
    Command command;
    command.kind = kind_of(type);
    if (inner_type != type) return command;
    Fields fields(inner);
    while (const auto field = fields.next()) take(*field, command);
    if (fields.broken()) return std::nullopt;
    if (command.kind == Command::Kind::kLookup) {
        command.failed = command.lookup == Command::Lookup::kFailed;
    }
    return command;
}

}  // namespace

void append_connect(const Connect& connect, std::string& out) {
    std::string command;
    append_bytes(1, kClient, command);
    if (!connect.auth_method.empty()) {
        append_bytes(3, connect.auth_data, command);
        append_bytes(5, connect.auth_method, command);
    }
    append_number(4, kProtocolVersion, command);
    if (!connect.proxy_to.empty()) append_bytes(6, connect.proxy_to, command);
    append_frame(kConnect, command, out);
}

void append_partitions_request(std::string_view topic, std::uint64_t request, std::string& out) {
    std::string command;
    append_bytes(1, topic, command);
    append_number(2, request, command);
    append_frame(kPartitions, command, out);
}

void append_lookup(std::string_view topic, std::uint64_t request, bool authoritative,
                   std::string& out) {
    std::string command;
    append_bytes(1, topic, command);
    append_number(2, request, command);
    append_number(3, authoritative ? 1 : 0, command);
    append_frame(kLookup, command, out);
}

void append_producer(std::string_view topic, std::uint64_t producer, std::string_view name,
                     std::uint64_t request, std::string& out) {
    std::string command;
    append_bytes(1, topic, command);
    append_number(2, producer, command);
    append_number(3, request, command);
    append_bytes(4, name, command);
    append_frame(kProducer, command, out);
}

void append_close_producer(std::uint64_t producer, std::uint64_t request, std::string& out) {
    std::string command;
    append_number(1, producer, command);
    append_number(2, request, command);
    append_frame(kCloseProducer, command, out);
}

void append_ping(std::string& out) {
    append_frame(kPing, {}, out);
}

void append_pong(std::string& out) {
    append_frame(kPong, {}, out);
}

void append_send(const Send& send, std::string_view metadata, std::string_view payload,
                 std::string& out) {
    std::string command;
    append_number(1, send.producer, command);
    append_number(2, send.first, command);
    if (send.count > 1) {
        append_number(3, send.count, command);
        append_number(6, send.first + send.count - 1, command);
    }
    const std::string base = base_command(kSend, command);
    const std::size_t checked = kSizeBytes + metadata.size() + payload.size();
    const std::size_t all = kSizeBytes + base.size() + kHasChecksum.size() + kSizeBytes + checked;
    append_u32(static_cast<std::uint32_t>(all), out);
    append_u32(static_cast<std::uint32_t>(base.size()), out);
    out += base;
    out += kHasChecksum;
    const std::size_t checksum_at = out.size();
    append_u32(0, out);
    append_u32(static_cast<std::uint32_t>(metadata.size()), out);
    out += metadata;
    out += payload;
    std::string checksum;
    append_u32(crc32c(std::string_view(out).substr(checksum_at + kSizeBytes)), checksum);
    out.replace(checksum_at, kSizeBytes, checksum);
}

std::string& Reader::buffer() {
    if (at_ == buffer_.size() || at_ >= kCompactBytes) {
        buffer_.erase(0, at_);
        at_ = 0;
    }
    return buffer_;
}

std::optional<Command> Reader::next(std::string& broken) {
    const std::string_view rest = std::string_view(buffer_).substr(at_);
    if (rest.size() < 2 * kSizeBytes) return std::nullopt;
    const std::size_t frame = u32_at(rest, 0);
    const std::size_t size = u32_at(rest, kSizeBytes);
    if (frame > kMaxFrame || frame < kSizeBytes || size > frame - kSizeBytes) {
        broken = "a frame of " + std::to_string(frame) + " bytes has a command of " +
                 std::to_string(size);
        return std::nullopt;
    }
    if (rest.size() < kSizeBytes + frame) return std::nullopt;
    auto command = read_command(rest.substr(2 * kSizeBytes, size));
    if (!command) {
        broken = "a command cannot be read";
        return std::nullopt;
    }
    at_ += kSizeBytes + frame;
    return command;
}

}  // namespace outbox::pulsar
