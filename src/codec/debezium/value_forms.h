#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outbox::codec::debezium {

/// A time as PostgreSQL prints it with DateStyle ISO.
struct PrintedTime {
    std::int64_t days = 0;  ///< Since 1970-01-01; 0 of a time without a date.
    std::int64_t us = 0;    ///< Since midnight; of UTC, where it has a zone.
    [[nodiscard]] std::int64_t total_ms() const { return days * 86'400'000 + us / 1000; }
    /// None: PostgreSQL has years behind those that 64 bits can count.
    [[nodiscard]] std::optional<std::int64_t> total_us() const {
        constexpr std::int64_t kMostDays = 106'751'990;
        if (days > kMostDays) return std::nullopt;
        return days * 86'400'000'000 + us;
    }
};

/// "2026-01-31", "2026-01-31 23:59:59.5", "2026-01-31 23:59:59+02:30", "0044-03-15 BC". None:
/// anything else, "infinity" among it.
[[nodiscard]] std::optional<PrintedTime> read_timestamp(std::string_view text);
/// "23:59:59.5".
[[nodiscard]] std::optional<PrintedTime> read_time(std::string_view text);

/// "2026-01-31T23:59:59.500000Z" with so many digits of a second; 0: without.
[[nodiscard]] std::string zoned_text(const PrintedTime& time, int digits);

/// java.util.Date.toString of so many milliseconds since 1970, where the zone is UTC:
/// "Thu Jan 01 00:00:00 UTC 1970". Days before 1582-10-15 are of the Julian calendar; it begins
/// with the year 1.
[[nodiscard]] std::string java_date_text(std::int64_t ms);
/// How Kafka Connect's SimpleHeaderConverter writes the same: a date where it is midnight, and
/// whatever is before 1970-01-02 as a time of the day.
[[nodiscard]] std::string header_date_text(std::int64_t ms);

/// A decimal number as BigDecimal holds it: digits and how many of them are behind the point.
struct DecimalText {
    bool negative = false;
    std::string digits;  ///< Without leading zeros, "0" at least.
    int scale = 0;
};

/// None: NaN, an infinity, or no number.
[[nodiscard]] std::optional<DecimalText> read_decimal(std::string_view text);
/// With exactly so many digits behind the point; none where that would lose one.
[[nodiscard]] std::optional<DecimalText> with_scale(DecimalText number, int scale);
/// BigDecimal.stripTrailingZeros, but not to less than whole numbers.
[[nodiscard]] DecimalText without_zeros(DecimalText number);
/// BigInteger.toByteArray of the digits: two's complement, highest byte first.
[[nodiscard]] std::string unscaled_bytes(const DecimalText& number);
/// BigDecimal.toPlainString.
[[nodiscard]] std::string plain_text(const DecimalText& number);

/// bytea as PostgreSQL prints it: \x and hexadecimal digits. None: anything else.
[[nodiscard]] std::optional<std::string> read_bytea(std::string_view text);

}  // namespace outbox::codec::debezium
