#include "brokers/mqtt/protocol.h"

namespace outbox::mqtt {
namespace {

constexpr std::size_t kMaxPacket = std::size_t{1} << 20;  // nothing for us is that large
constexpr std::size_t kCompactBytes = std::size_t{64} << 10;
constexpr std::uint32_t kMaxTaken = 65'536;  // of a packet to us, as we tell the broker

// Types of packets, with their flags.
constexpr std::uint8_t kConnect = 0x10;
constexpr std::uint8_t kConnack = 0x20;
constexpr std::uint8_t kPublishQos1 = 0x32;
constexpr std::uint8_t kRetainFlag = 0x01;
constexpr std::uint8_t kPuback = 0x40;
constexpr std::uint8_t kPingreq = 0xC0;
constexpr std::uint8_t kPingresp = 0xD0;
constexpr std::uint8_t kDisconnect = 0xE0;

// Of CONNECT's flags.
constexpr std::uint8_t kCleanStart = 0x02;
constexpr std::uint8_t kHasPassword = 0x40;
constexpr std::uint8_t kHasUser = 0x80;

// Properties (2.2.2.2).
constexpr std::uint8_t kContentType = 0x03;
constexpr std::uint8_t kReasonString = 0x1F;
constexpr std::uint8_t kServerKeepAlive = 0x13;
constexpr std::uint8_t kReceiveMaximum = 0x21;
constexpr std::uint8_t kMaximumQos = 0x24;
constexpr std::uint8_t kRetainAvailable = 0x25;
constexpr std::uint8_t kUserProperty = 0x26;
constexpr std::uint8_t kMaximumPacketSize = 0x27;

void append_u16(std::size_t number, std::string& out) {
    out += static_cast<char>(number >> 8U & 0xFFU);
    out += static_cast<char>(number & 0xFFU);
}

void append_varint(std::size_t number, std::string& out) {
    do {
        const auto digit = static_cast<unsigned char>(number & 0x7FU);
        number >>= 7U;
        out += static_cast<char>(number > 0 ? digit | 0x80U : digit);
    } while (number > 0);
}

std::size_t varint_bytes(std::size_t number) {
    std::size_t bytes = 1;
    while ((number >>= 7U) > 0) ++bytes;
    return bytes;
}

void append_string(std::string_view text, std::string& out) {
    append_u16(text.size(), out);
    out += text;
}

std::size_t property_bytes(const Publish& publish) {
    std::size_t bytes = 0;
    for (const auto& [name, value] : publish.properties) {
        bytes += 1 + 2 + name.size() + 2 + value.size();
    }
    if (publish.content_type.data() != nullptr) bytes += 1 + 2 + publish.content_type.size();
    return bytes;
}

// What stands behind the fixed header.
std::size_t body_bytes(const Publish& publish, std::size_t properties) {
    return 2 + publish.topic.size() + 2 + varint_bytes(properties) + properties +
           publish.payload.size();
}

// Takes from the front; false where it ends too early.
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : rest_(bytes) {}
    [[nodiscard]] bool empty() const { return rest_.empty(); }
    [[nodiscard]] std::size_t left() const { return rest_.size(); }
    bool take(std::size_t count, std::string_view& out) {
        if (rest_.size() < count) return false;
        out = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return true;
    }
    bool number(std::size_t bytes, std::uint32_t& out) {
        std::string_view text;
        if (!take(bytes, text)) return false;
        out = 0;
        for (const char c : text) out = out << 8U | static_cast<unsigned char>(c);
        return true;
    }
    bool varint(std::uint32_t& out) {
        out = 0;
        for (unsigned shift = 0; shift < 28; shift += 7) {
            std::uint32_t digit = 0;
            if (!number(1, digit)) return false;
            out |= (digit & 0x7FU) << shift;
            if ((digit & 0x80U) == 0) return true;
        }
        return false;
    }
    bool string(std::string_view& out) {
        std::uint32_t size = 0;
        return number(2, size) && take(size, out);
    }

  private:
    std::string_view rest_;
};

// How many bytes the value of a property has; 0: it is a string or a pair of them.
std::optional<std::size_t> value_bytes(std::uint32_t property) {
    switch (property) {
        case 0x01:
        case 0x17:
        case 0x19:
        case kMaximumQos:
        case kRetainAvailable:
        case 0x28:
        case 0x29:
        case 0x2A:
            return 1;
        case kServerKeepAlive:
        case kReceiveMaximum:
        case 0x22:
        case 0x23:
            return 2;
        case 0x02:
        case 0x11:
        case 0x18:
        case kMaximumPacketSize:
            return 4;
        case 0x03:
        case 0x08:
        case 0x09:
        case 0x12:
        case 0x15:
        case 0x16:
        case 0x1A:
        case 0x1C:
        case kReasonString:
        case kUserProperty:
            return 0;
        default:
            return std::nullopt;
    }
}

bool read_properties(Cursor& cursor, Packet& packet) {
    std::uint32_t size = 0;
    std::string_view bytes;
    if (!cursor.varint(size) || !cursor.take(size, bytes)) return false;
    Cursor properties(bytes);
    while (!properties.empty()) {
        std::uint32_t property = 0;
        if (!properties.number(1, property)) return false;
        const auto width = value_bytes(property);
        if (!width) return false;
        if (*width == 0) {
            std::string_view text;
            if (!properties.string(text)) return false;
            if (property == kReasonString) packet.reason = text;
            if (property == kUserProperty && !properties.string(text)) return false;
            continue;
        }
        std::uint32_t value = 0;
        if (!properties.number(*width, value)) return false;
        if (property == kReceiveMaximum) packet.receive_max = static_cast<std::uint16_t>(value);
        if (property == kServerKeepAlive) packet.keep_alive_s = static_cast<std::uint16_t>(value);
        if (property == kMaximumPacketSize) packet.max_packet = value;
        if (property == kMaximumQos) packet.takes_qos_1 = value > 0;
        if (property == kRetainAvailable) packet.keeps_last = value > 0;
    }
    return true;
}

bool read_code(Cursor& cursor, Packet& packet) {
    std::uint32_t code = 0;
    if (!cursor.number(1, code)) return false;
    packet.code = static_cast<std::uint8_t>(code);
    return true;
}

// Code and properties may be left out from the end.
bool read_end(Cursor& cursor, Packet& packet) {
    if (cursor.empty()) return true;
    if (!read_code(cursor, packet)) return false;
    return cursor.empty() || read_properties(cursor, packet);
}

bool read_packet(std::uint8_t type, std::string_view body, Packet& packet) {
    Cursor cursor(body);
    std::uint32_t number = 0;
    switch (type) {
        case kConnack:
            packet.kind = Packet::Kind::kConnected;
            if (!cursor.number(1, number) || !read_code(cursor, packet)) return false;
            // A broker of MQTT 3 ends here.
            return cursor.empty() || read_properties(cursor, packet);
        case kPuback:
            packet.kind = Packet::Kind::kAnswer;
            if (!cursor.number(2, number)) return false;
            packet.id = static_cast<std::uint16_t>(number);
            return read_end(cursor, packet);
        case kPingresp:
            packet.kind = Packet::Kind::kPong;
            return true;
        case kDisconnect:
            packet.kind = Packet::Kind::kDisconnect;
            return read_end(cursor, packet);
        default:
            return false;
    }
}

}  // namespace

void append_connect(const Connect& connect, std::string& out) {
    std::string body;
    append_string("MQTT", body);
    body += '\x05';
    unsigned flags = kCleanStart;
    if (!connect.user.empty()) flags |= kHasUser;
    if (!connect.password.empty()) flags |= kHasPassword;
    body += static_cast<char>(flags);
    append_u16(connect.keep_alive_s, body);
    append_varint(5, body);
    body += static_cast<char>(kMaximumPacketSize);
    append_u16(kMaxTaken >> 16U, body);
    append_u16(kMaxTaken & 0xFFFFU, body);
    append_string("", body);  // the client's name
    if (!connect.user.empty()) append_string(connect.user, body);
    if (!connect.password.empty()) append_string(connect.password, body);
    out += static_cast<char>(kConnect);
    append_varint(body.size(), out);
    out += body;
}

std::size_t bytes_of(const Publish& publish) {
    const std::size_t body = body_bytes(publish, property_bytes(publish));
    return 1 + varint_bytes(body) + body;
}

void append_publish(const Publish& publish, std::string& out) {
    const std::size_t properties = property_bytes(publish);
    out += static_cast<char>(publish.retain ? kPublishQos1 | kRetainFlag : kPublishQos1);
    append_varint(body_bytes(publish, properties), out);
    append_string(publish.topic, out);
    append_u16(publish.id, out);
    append_varint(properties, out);
    if (publish.content_type.data() != nullptr) {
        out += static_cast<char>(kContentType);
        append_string(publish.content_type, out);
    }
    for (const auto& [name, value] : publish.properties) {
        out += static_cast<char>(kUserProperty);
        append_string(name, out);
        append_string(value, out);
    }
    out += publish.payload;
}

void append_ping(std::string& out) {
    out += static_cast<char>(kPingreq);
    out += '\0';
}

void append_disconnect(std::string& out) {
    out += static_cast<char>(kDisconnect);
    out += '\0';
}

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

std::optional<Packet> Reader::next(std::string& broken) {
    Cursor cursor(std::string_view(buffer_).substr(at_));
    std::uint32_t type = 0;
    std::uint32_t size = 0;
    if (!cursor.number(1, type)) return std::nullopt;
    if (type != kConnack && type != kPuback && type != kPingresp && type != kDisconnect) {
        broken = "a packet of the type " + std::to_string(type);
        return std::nullopt;
    }
    if (!cursor.varint(size)) {
        constexpr std::size_t kLongestHead = 5;
        if (buffer_.size() - at_ >= kLongestHead) broken = "a length without an end";
        return std::nullopt;
    }
    if (size > kMaxPacket) {
        broken = "a packet of " + std::to_string(size) + " bytes";
        return std::nullopt;
    }
    std::string_view body;
    if (!cursor.take(size, body)) return std::nullopt;
    Packet packet;
    if (!read_packet(static_cast<std::uint8_t>(type), body, packet)) {
        broken = "a packet that cannot be read, of the type " + std::to_string(type);
        return std::nullopt;
    }
    at_ = buffer_.size() - cursor.left();
    return packet;
}

}  // namespace outbox::mqtt
