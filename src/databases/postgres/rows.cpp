#include "databases/postgres/rows.h"

#include <charconv>
#include <cstring>
#include <endian.h>
#include <libpq-fe.h>

namespace outbox::postgres {
namespace {

constexpr int kBinary = 1;

std::int64_t decimal(std::string_view text) {
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// An int4 or int8.
std::int64_t big_endian(std::string_view bytes) {
    if (bytes.size() == sizeof(std::int32_t)) {
        std::uint32_t value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return static_cast<std::int32_t>(be32toh(value));
    }
    if (bytes.size() != sizeof(std::int64_t)) return 0;
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<std::int64_t>(be64toh(value));
}

std::string_view error_field(const PGresult* result, int field) {
    const char* text = PQresultErrorField(result, field);
    return text == nullptr ? std::string_view() : std::string_view(text);
}

}  // namespace

void Rows::Clear::operator()(pg_result* result) const {
    PQclear(result);
}

bool Rows::succeeded() const {
    const ExecStatusType status = PQresultStatus(result_.get());
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

std::string_view Rows::state() const {
    return error_field(result_.get(), PG_DIAG_SQLSTATE);
}

std::string_view Rows::message() const {
    return error_field(result_.get(), PG_DIAG_MESSAGE_PRIMARY);
}

int Rows::size() const {
    return PQntuples(result_.get());
}

int Rows::columns() const {
    return PQnfields(result_.get());
}

std::string_view Rows::text(int row, int column) const {
    if (PQgetisnull(result_.get(), row, column) != 0) return {};
    return {PQgetvalue(result_.get(), row, column),
            static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

std::int64_t Rows::integer(int row, int column) const {
    const std::string_view value = text(row, column);
    return PQfformat(result_.get(), column) == kBinary ? big_endian(value) : decimal(value);
}

bool Rows::boolean(int row, int column) const {
    const std::string_view value = text(row, column);
    return value == (PQfformat(result_.get(), column) == kBinary ? std::string_view("\x01", 1)
                                                                 : std::string_view("t"));
}

std::int64_t Rows::affected() const {
    return decimal(PQcmdTuples(result_.get()));
}

}  // namespace outbox::postgres
