#include "databases/postgres/stream/pgoutput.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <endian.h>

#include "databases/postgres/source/decode.h"

namespace outbox::postgres::pgoutput {
namespace {

constexpr std::uint8_t kTruncateCascade = 1;
constexpr std::uint8_t kTruncateRestartIdentity = 2;
constexpr std::uint8_t kMessageTransactional = 1;
constexpr std::uint8_t kColumnIsKey = 1;

template <typename T>
T from_big_endian(const char* bytes) {
    T wire;
    std::memcpy(&wire, bytes, sizeof wire);
    if constexpr (sizeof wire == 8) return static_cast<T>(be64toh(wire));
    if constexpr (sizeof wire == 4) return static_cast<T>(be32toh(wire));
    if constexpr (sizeof wire == 2) return static_cast<T>(be16toh(wire));
    return wire;
}

// Reads fields one after another. The first one that does not fit is remembered; those behind it
// come out as zero or empty, so that only loops and the end need to look.
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

    template <typename T>
    T integer(const char* what) {
        if (!room(sizeof(T), what)) return 0;
        const T value = from_big_endian<T>(bytes_.data() + at_);
        at_ += sizeof(T);
        return value;
    }

    std::string_view take(std::size_t size, const char* what) {
        if (!room(size, what)) return {};
        const std::string_view view = bytes_.substr(at_, size);
        at_ += size;
        return view;
    }

    // Up to a zero byte, which is skipped.
    std::string_view text(const char* what) {
        const std::size_t end = bytes_.find('\0', at_);
        if (end == std::string_view::npos) {
            fail(what);
            return {};
        }
        const std::string_view view = bytes_.substr(at_, end - at_);
        at_ = end + 1;
        return view;
    }

    std::string_view rest() {
        const std::string_view view = bytes_.substr(at_);
        at_ = bytes_.size();
        return view;
    }

    std::int64_t unix_us(const char* what) {
        return unix_time_us(static_cast<std::int64_t>(integer<std::uint64_t>(what)));
    }

    void fail(const char* what) {
        if (what_ != nullptr) return;
        what_ = what;
        failed_at_ = at_;
        at_ = bytes_.size();
    }

    [[nodiscard]] bool ok() const { return what_ == nullptr; }

    // All bytes must have been used.
    [[nodiscard]] Status finish(const char* message) {
        if (ok() && at_ != bytes_.size()) fail("end");
        if (ok()) return {};
        return {ErrorCode::kQueryFailed, Advice::kRetryDestination,
                std::string("malformed replication message: ") + message + " of " +
                    std::to_string(bytes_.size()) + " bytes is wrong at byte " +
                    std::to_string(failed_at_) + " (" + what_ +
                    "); the stream is joined anew. If this comes again, look for a proxy between "
                    "the relay and the server that changes what passes through it"};
    }

  private:
    bool room(std::size_t size, const char* what) {
        if (bytes_.size() - at_ >= size) return true;
        fail(what);
        return false;
    }

    std::string_view bytes_;
    std::size_t at_ = 0;
    std::size_t failed_at_ = 0;
    const char* what_ = nullptr;
};

void parse_row(Cursor& cursor, std::vector<Value>& out) {
    out.clear();
    const auto count = cursor.integer<std::uint16_t>("number of columns");
    for (std::uint16_t i = 0; i < count && cursor.ok(); ++i) {
        Value value;
        switch (cursor.integer<std::uint8_t>("kind of a column")) {
            case 'n':
                value.form = Value::Form::kNull;
                break;
            case 'u':
                value.form = Value::Form::kUnchanged;
                break;
            case 't':
                value.form = Value::Form::kText;
                break;
            case 'b':
                value.form = Value::Form::kBinary;
                break;
            default:
                cursor.fail("kind of a column");
                return;
        }
        if (value.form == Value::Form::kText || value.form == Value::Form::kBinary) {
            const auto size = cursor.integer<std::uint32_t>("length of a column");
            value.bytes = cursor.take(size, "bytes of a column");
        }
        if (cursor.ok()) out.push_back(value);
    }
}

Status parse_begin(Cursor& cursor, Message& out) {
    out.kind = Kind::kBegin;
    out.lsn = cursor.integer<std::uint64_t>("LSN of the commit");
    out.commit_us = cursor.unix_us("time of the commit");
    out.xid = cursor.integer<std::uint32_t>("transaction id");
    return cursor.finish("Begin");
}

Status parse_commit(Cursor& cursor, Message& out) {
    out.kind = Kind::kCommit;
    cursor.integer<std::uint8_t>("flags");  // unused by the protocol
    out.lsn = cursor.integer<std::uint64_t>("LSN of the commit");
    out.end_lsn = cursor.integer<std::uint64_t>("LSN of the end");
    out.commit_us = cursor.unix_us("time of the commit");
    return cursor.finish("Commit");
}

Status parse_origin(Cursor& cursor, Message& out) {
    out.kind = Kind::kOrigin;
    out.lsn = cursor.integer<std::uint64_t>("LSN of the commit");
    out.name = cursor.text("name");
    return cursor.finish("Origin");
}

Status parse_relation(Cursor& cursor, Message& out) {
    out.kind = Kind::kRelation;
    out.columns.clear();
    out.relation = cursor.integer<std::uint32_t>("oid");
    out.schema = cursor.text("schema");
    out.name = cursor.text("name");
    out.replica_identity = static_cast<char>(cursor.integer<std::uint8_t>("replica identity"));
    const auto count = cursor.integer<std::uint16_t>("number of columns");
    for (std::uint16_t i = 0; i < count && cursor.ok(); ++i) {
        RelationColumn column;
        column.key = (cursor.integer<std::uint8_t>("flags of a column") & kColumnIsKey) != 0;
        column.name = cursor.text("name of a column");
        column.type_oid = cursor.integer<std::uint32_t>("type of a column");
        column.type_modifier =
            static_cast<std::int32_t>(cursor.integer<std::uint32_t>("type of a column"));
        if (cursor.ok()) out.columns.push_back(column);
    }
    return cursor.finish("Relation");
}

Status parse_type(Cursor& cursor, Message& out) {
    out.kind = Kind::kType;
    out.type_oid = cursor.integer<std::uint32_t>("oid");
    out.schema = cursor.text("schema");
    out.name = cursor.text("name");
    return cursor.finish("Type");
}

Status parse_insert(Cursor& cursor, Message& out) {
    out.kind = Kind::kInsert;
    out.relation = cursor.integer<std::uint32_t>("oid");
    if (cursor.integer<std::uint8_t>("kind of the row") != 'N') cursor.fail("kind of the row");
    parse_row(cursor, out.row);
    return cursor.finish("Insert");
}

Status parse_update(Cursor& cursor, Message& out) {
    out.kind = Kind::kUpdate;
    out.old_form = 0;
    out.old_row.clear();
    out.relation = cursor.integer<std::uint32_t>("oid");
    auto form = static_cast<char>(cursor.integer<std::uint8_t>("kind of the row"));
    if (form == 'K' || form == 'O') {
        out.old_form = form;
        parse_row(cursor, out.old_row);
        form = static_cast<char>(cursor.integer<std::uint8_t>("kind of the row"));
    }
    if (form != 'N') cursor.fail("kind of the row");
    parse_row(cursor, out.row);
    return cursor.finish("Update");
}

Status parse_delete(Cursor& cursor, Message& out) {
    out.kind = Kind::kDelete;
    out.relation = cursor.integer<std::uint32_t>("oid");
    out.old_form = static_cast<char>(cursor.integer<std::uint8_t>("kind of the row"));
    if (out.old_form != 'K' && out.old_form != 'O') cursor.fail("kind of the row");
    parse_row(cursor, out.old_row);
    return cursor.finish("Delete");
}

Status parse_truncate(Cursor& cursor, Message& out) {
    out.kind = Kind::kTruncate;
    out.truncated.clear();
    const auto count = cursor.integer<std::uint32_t>("number of tables");
    const auto options = cursor.integer<std::uint8_t>("options");
    out.cascade = (options & kTruncateCascade) != 0;
    out.restart_identity = (options & kTruncateRestartIdentity) != 0;
    for (std::uint32_t i = 0; i < count && cursor.ok(); ++i) {
        const auto oid = cursor.integer<std::uint32_t>("oid");
        if (cursor.ok()) out.truncated.push_back(oid);
    }
    return cursor.finish("Truncate");
}

Status parse_logical_message(Cursor& cursor, Message& out) {
    out.kind = Kind::kMessage;
    out.transactional = (cursor.integer<std::uint8_t>("flags") & kMessageTransactional) != 0;
    out.lsn = cursor.integer<std::uint64_t>("LSN");
    out.prefix = cursor.text("prefix");
    const auto size = cursor.integer<std::uint32_t>("length of the content");
    out.content = cursor.take(size, "content");
    return cursor.finish("Message");
}

std::string printed(char c) {
    if (c > ' ' && c < '\x7f') return {'\'', c, '\''};
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "0x%02x", static_cast<unsigned char>(c));
    return text.data();
}

void put(char*& at, std::uint64_t value) {
    const std::uint64_t wire = htobe64(value);
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
}

}  // namespace

std::string format_lsn(Lsn lsn) {
    std::array<char, 20> text{};
    std::snprintf(text.data(), text.size(), "%X/%X", static_cast<unsigned>(lsn >> 32U),
                  static_cast<unsigned>(lsn & 0xFFFFFFFFU));
    return text.data();
}

std::optional<Lsn> parse_lsn(std::string_view text) {
    const auto half = [](std::string_view digits, std::uint32_t& value) {
        const auto read = std::from_chars(digits.begin(), digits.end(), value, 16);
        return read.ec == std::errc() && read.ptr == digits.end();
    };
    const std::size_t slash = text.find('/');
    std::uint32_t high = 0;
    std::uint32_t low = 0;
    if (slash == std::string_view::npos || !half(text.substr(0, slash), high) ||
        !half(text.substr(slash + 1), low)) {
        return {};
    }
    return (Lsn{high} << 32U) | low;
}

Status parse_envelope(std::string_view bytes, Envelope& out) {
    Cursor cursor(bytes);
    switch (const auto kind = static_cast<char>(cursor.integer<std::uint8_t>("kind"))) {
        case 'w':
            out.keepalive = false;
            out.reply_requested = false;
            out.start_lsn = cursor.integer<std::uint64_t>("start LSN");
            out.end_lsn = cursor.integer<std::uint64_t>("end LSN");
            out.sent_us = cursor.unix_us("time");
            if (cursor.ok()) out.message = cursor.rest();
            return cursor.finish("XLogData");
        case 'k':
            out.keepalive = true;
            out.message = {};
            out.start_lsn = 0;
            out.end_lsn = cursor.integer<std::uint64_t>("end LSN");
            out.sent_us = cursor.unix_us("time");
            out.reply_requested = cursor.integer<std::uint8_t>("reply requested") != 0;
            return cursor.finish("keepalive");
        default:
            cursor.fail("kind");
            return cursor.finish(("CopyData " + (bytes.empty() ? "" : printed(kind))).c_str());
    }
}

std::array<char, 34> status_update(Lsn written, Lsn flushed, Lsn applied, std::int64_t now_us,
                                   bool request_reply) {
    std::array<char, 34> bytes{};
    char* at = bytes.data();
    *at++ = 'r';
    put(at, written);
    put(at, flushed);
    put(at, applied);
    put(at, static_cast<std::uint64_t>(now_us - kPostgresEpochUs));
    *at = request_reply ? 1 : 0;
    return bytes;
}

Status parse_message(std::string_view bytes, Message& out) {
    Cursor cursor(bytes);
    switch (const auto kind = static_cast<char>(cursor.integer<std::uint8_t>("kind"))) {
        case 'I':
            return parse_insert(cursor, out);
        case 'B':
            return parse_begin(cursor, out);
        case 'C':
            return parse_commit(cursor, out);
        case 'R':
            return parse_relation(cursor, out);
        case 'Y':
            return parse_type(cursor, out);
        case 'O':
            return parse_origin(cursor, out);
        case 'U':
            return parse_update(cursor, out);
        case 'D':
            return parse_delete(cursor, out);
        case 'T':
            return parse_truncate(cursor, out);
        case 'M':
            return parse_logical_message(cursor, out);
        default:
            cursor.fail("kind, which protocol version 1 with streaming off does not have");
            return cursor.finish(
                ("message " + (bytes.empty() ? "without a kind" : printed(kind))).c_str());
    }
}

}  // namespace outbox::postgres::pgoutput
