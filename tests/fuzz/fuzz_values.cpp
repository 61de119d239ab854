// One value of a type (the first byte) as text, time and JSON.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "databases/postgres/source/decode.h"
#include "databases/postgres/stream/value_text.h"
#include "tests/fuzz/bytes.h"

using namespace outbox::postgres;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    constexpr int kTypes = static_cast<int>(WireType::kTimestamptz) + 1;
    const auto type = static_cast<WireType>(data[0] % kTypes);
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 1, size - 1});
    const std::string_view bytes = copy;
    std::string buffer;
    std::string_view text;
    std::int64_t number = 0;
    const bool has = text_of_value(type, bytes, buffer, text);
    if (has && !has_text(type)) std::abort();
    if (integer_of_value(type, bytes, number) && text != std::to_string(number)) std::abort();
    if (timestamptz_of_value(type, bytes, buffer, text) && text.size() != 8) std::abort();
    std::vector<std::int64_t> numbers;
    if (decode_integers({bytes.data(), bytes.size()}, numbers) && numbers.size() > size / 12) {
        std::abort();
    }
    std::string json = "{\"a\": ";
    if (append_json(type, bytes, json)) {
        json += '}';
        std::string stripped;
        strip_json_nulls(json, stripped);
        if (stripped.size() > json.size()) std::abort();
        std::string again;
        strip_json_nulls(stripped, again);
    }
    strip_json_nulls(bytes, buffer);
    if (buffer.size() > bytes.size()) std::abort();
    return 0;
}
