#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

// MQTT 5.0 (OASIS, 7 March 2019), as far as one who publishes with QoS 1 speaks it.
namespace outbox::mqtt {

struct Connect {
    std::string_view user;  ///< Empty: none.
    std::string_view password;
    std::uint16_t keep_alive_s = 0;
};
/// Appends CONNECT: no session of before, and a name that the broker gives.
void append_connect(const Connect& connect, std::string& out);

/// What a string of MQTT can hold at most.
inline constexpr std::size_t kMaxStringBytes = 65'535;

struct Publish {
    std::string_view topic;
    std::uint16_t id = 0;  ///< From 1.
    bool retain = false;
    std::span<const std::pair<std::string_view, std::string_view>> properties;  ///< The user's.
    std::string_view payload;
    std::string_view content_type = {};  ///< Null: none.
};
/// Bytes of the whole packet. Strings are no longer than `kMaxStringBytes`.
[[nodiscard]] std::size_t bytes_of(const Publish& publish);
/// Appends PUBLISH with QoS 1.
void append_publish(const Publish& publish, std::string& out);

void append_ping(std::string& out);
void append_disconnect(std::string& out);

/// What the broker said.
struct Packet {
    enum class Kind : std::uint8_t {
        kConnected,  ///< CONNACK; `code` says whether.
        kAnswer,     ///< PUBACK of the message `id`.
        kPong,
        kDisconnect
    };
    Kind kind = Kind::kPong;
    std::uint16_t id = 0;
    std::uint8_t code = 0;           ///< A reason code; below 0x80 it is none of an error.
    std::string_view reason = {};    ///< In the broker's words; empty: it gives none.
    std::uint16_t receive_max = 0;   ///< Of CONNACK: messages without an answer at once.
    std::uint32_t max_packet = 0;    ///< Of CONNACK; 0: no limit.
    std::uint16_t keep_alive_s = 0;  ///< Of CONNACK, where the broker sets it.
    bool takes_qos_1 = true;         ///< Of CONNACK.
    bool keeps_last = true;          ///< Of CONNACK: it knows retained messages.
};

/// Cuts what the broker sends into packets.
class Reader {
  public:
    /// To be appended to; views of packets end with it.
    std::string& buffer();
    /// The next whole packet, whose views live until `buffer` is called; nothing: it has not come
    /// yet, or `broken` says why there never will be one.
    std::optional<Packet> next(std::string& broken);

  private:
    std::string buffer_;
    std::size_t at_ = 0;  // in `buffer_`: what comes next
};

}  // namespace outbox::mqtt
