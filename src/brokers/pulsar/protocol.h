#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Pulsar's binary protocol (pulsar.apache.org/docs/developing-binary-protocol), as far as one who
// publishes speaks it.
namespace outbox::pulsar {

struct Connect {
    std::string_view auth_method;  ///< "token", "tls"; empty: none.
    std::string_view auth_data;
    std::string_view proxy_to;  ///< The "host:port" that a proxy is to lead to; empty: none is.
};
void append_connect(const Connect& connect, std::string& out);

/// How many partitions a topic has.
void append_partitions_request(std::string_view topic, std::uint64_t request, std::string& out);
/// Which broker has a topic that is not partitioned, or one partition.
void append_lookup(std::string_view topic, std::uint64_t request, bool authoritative,
                   std::string& out);
/// From now on `producer` stands for the topic in what this connection sends.
void append_producer(std::string_view topic, std::uint64_t producer, std::string_view name,
                     std::uint64_t request, std::string& out);
void append_close_producer(std::uint64_t producer, std::uint64_t request, std::string& out);
void append_ping(std::string& out);
void append_pong(std::string& out);

/// One message, or a batch of `count`, whose messages have the sequence ids from `first`.
struct Send {
    std::uint64_t producer = 0;
    std::uint64_t first = 0;
    std::uint32_t count = 1;
};
/// `metadata` and `payload` are those of message.h.
void append_send(const Send& send, std::string_view metadata, std::string_view payload,
                 std::string& out);

/// What the broker said.
struct Command {
    enum class Kind : std::uint8_t {
        kConnected,
        kReceipt,        ///< It has the message or batch of `producer` with the sequence id.
        kSendError,      ///< It does not.
        kError,          ///< The answer to `request`.
        kProducer,       ///< The same: the producer is there.
        kPartitions,     ///< The same.
        kLookup,         ///< The same.
        kCloseProducer,  ///< The topic has gone from there, or is to be looked up again.
        kPing,
        kPong,
        kOther
    };
    enum class Lookup : std::uint8_t { kRedirect = 0, kConnect = 1, kFailed = 2 };

    Kind kind = Kind::kOther;
    std::uint64_t request = 0;
    std::uint64_t producer = 0;
    std::uint64_t sequence = 0;
    bool failed = false;        ///< Of kPartitions and kLookup: `error` and `text` say why.
    std::uint32_t error = 0;    ///< A ServerError.
    std::string_view text;      ///< In the broker's words.
    std::size_t max_bytes = 0;  ///< Of kConnected: of a message.
    std::uint32_t partitions = 0;
    Lookup lookup = Lookup::kFailed;
    std::string_view url;  ///< Of kLookup: the broker.
    std::string_view url_tls;
    bool authoritative = false;
    bool through_proxy = false;  ///< The broker is reached by way of the server that was asked.
    bool ready = true;           ///< Of kProducer; false: another answer follows.
};

/// Cuts what the broker sends into commands.
class Reader {
  public:
    /// To be appended to; views of commands end with it.
    std::string& buffer();
    /// The next whole command, whose views live until `buffer` is called; nothing: it has not come
    /// yet, or `broken` says why there never will be one.
    std::optional<Command> next(std::string& broken);

  private:
    std::string buffer_;
    std::size_t at_ = 0;  // in `buffer_`: what comes next
};

}  // namespace outbox::pulsar
