#include "tests/databases/postgres/random_rows.h"

#include <array>
#include <stdexcept>

namespace outbox::test {

std::string RandomValues::digits(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += static_cast<char>('0' + below(10));
    return text;
}

std::string RandomValues::words(int max_characters) {
    static const std::vector<std::string> kOdd{" ",    "\"", "\\", "'",  "\n", "\t", "\x01", "\x1f",
                                               "\x7f", "é",  "漢", "😀", "{",  "}",  ", ",   ": ",
                                               "null", "/",  "\b", "\f", "\r", ""};
    std::string text;
    const int characters = below(max_characters + 1);
    for (int i = 0; i < characters;) {
        if (one_in(3)) {
            const std::string& odd = pick(kOdd);
            if (i + static_cast<int>(odd.size()) > max_characters) break;
            text += odd;
            i += static_cast<int>(odd.size());
        } else {
            text += static_cast<char>('a' + below(26));
            ++i;
        }
    }
    return text;
}

std::string RandomValues::json(int depth) {
    const auto space = [&] { return one_in(4) ? std::string("  \n") : std::string(); };
    const auto string = [&] {
        std::string text = "\"";
        for (const char c : words(12)) {
            if (c == '"' || c == '\\') text += '\\';
            if (static_cast<unsigned char>(c) < 0x20) {
                static const std::array<const char*, 3> kEscaped{"\\n", "\\u0007", "\\u001f"};
                text += kEscaped[static_cast<std::size_t>(below(3))];
            } else {
                text += c;
            }
        }
        return text + (one_in(5) ? "\\u00e9\\/\"" : "\"");
    };
    switch (depth > 0 ? below(8) : below(5)) {
        case 0:
            return "null";
        case 1:
            return pick<std::string>({"true", "false"});
        case 2:
            return pick<std::string>({"0", "-1", "1.50", "1e3", "12345678901234567890.1", "-0"});
        case 3:
        case 4:
            return string();
        case 5: {
            std::string text = "[" + space();
            const int count = below(4);
            for (int i = 0; i < count; ++i) text += (i > 0 ? "," : "") + space() + json(depth - 1);
            return text + "]";
        }
        default: {
            std::string text = "{" + space();
            const int count = below(5);
            for (int i = 0; i < count; ++i) {
                text += (i > 0 ? "," : "") + space() + string() + space() + ":" + json(depth - 1);
            }
            return text + space() + "}";
        }
    }
}

std::string RandomValues::number(int max_digits, int max_scale) {
    std::string text = one_in(3) ? "-" : "";
    text += one_in(4) ? "0" : digits(1 + below(max_digits));
    if (max_scale > 0 && !one_in(3)) {
        text += "." + (one_in(3) ? std::string(static_cast<std::size_t>(below(max_scale)), '0') +
                                       digits(1)
                                 : digits(1 + below(max_scale)));
    }
    return text;
}

std::string RandomValues::uuid() {
    static constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (int i = 0; i < 36; ++i) {
        const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        text += hyphen ? '-' : kDigits[below(16)];
    }
    return text;
}

std::string RandomValues::time(bool with_time, bool with_zone) {
    if (one_in(8)) return pick<std::string>({"infinity", "-infinity"});
    const auto two = [&](int limit, int from) {
        const int number = from + below(limit);
        return (number < 10 ? "0" : "") + std::to_string(number);
    };
    const int year = one_in(4) ? 1 + below(200'000) : 1900 + below(200);
    std::string text = std::to_string(10'000'000 + year).substr(year < 10'000 ? 4 : 2);
    text += "-" + two(12, 1) + "-" + two(28, 1);
    if (with_time) {
        text += " " + two(24, 0) + ":" + two(60, 0) + ":" + two(60, 0);
        if (!one_in(3)) text += "." + digits(1 + below(6));
        if (with_zone) text += pick<std::string>({"+00", "+02", "-11:30", "+05:45"});
    }
    return text + (year < 4000 && one_in(6) ? " BC" : "");
}

std::string RandomValues::value(const std::string& type) {
    if (type == "text" || type == "varchar" || type == "citext" || type == "label") {
        if (one_in(40)) {  // large enough to be stored out of line
            std::string text;
            while (text.size() < 20'000) text += words(200) + uuid();
            return text;
        }
        return words(60);
    }
    if (type == "varchar(40)" || type == "short_label") return words(40);
    if (type == "char(12)") return words(12);
    if (type == "name") return words(15);
    if (type == "uuid") return uuid();
    if (type == "smallint") return std::to_string(below(65'536) - 32'768);
    if (type == "integer") {
        return pick<std::string>(
            {"0", "-2147483648", "2147483647", std::to_string(below(1'000'000))});
    }
    if (type == "bigint") {
        return pick<std::string>(
            {"-1", "-9223372036854775808", "9223372036854775807", number(18, 0)});
    }
    if (type == "boolean") return pick<std::string>({"true", "false"});
    if (type == "numeric" || type == "amount") {
        return pick<std::string>({"NaN", "Infinity", "-Infinity", "0", "0.000", "1e130", "-1e-40",
                                  "10000", "100000000", "0.0001", "0.00001", number(5, 0),
                                  number(40, 30), number(6, 2), number(1, 12)});
    }
    if (type == "numeric(12,3)") return number(9, 6);
    if (type == "json" || type == "jsonb" || type == "document") return json(4);
    if (type == "bytea" || type == "blob") {
        std::string text = "\\x";
        for (int i = below(60); i > 0; --i) text += uuid().substr(0, 2);
        return text;
    }
    if (type == "mood") return pick<std::string>({"sad", "ok", "très \"heureux\""});
    if (type == "date") return time(false, false);
    if (type == "timestamp" || type == "moment") return time(true, false);
    if (type == "timestamptz") return time(true, true);
    throw std::logic_error("no values for type " + type);
}

}  // namespace outbox::test
