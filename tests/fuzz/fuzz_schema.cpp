// Schemas and payloads of any bytes, patterns, and what a registry may answer.

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "core/json_scan.h"
#include "schema/decimal.h"
#include "schema/json_document.h"
#include "schema/json_schema.h"
#include "schema/registry_answers.h"
#include "tests/fuzz/bytes.h"

namespace {

using namespace outbox;
using test::next_field;

void check(std::string_view schema_text, std::string_view other, std::string_view payload) {
    std::string why;
    const schema::References references{{"other", std::string(other)}};
    const auto schema = schema::JsonSchema::compile(schema_text, references, why);
    if (!schema) {
        if (why.empty()) std::abort();
        return;
    }
    const auto violation = schema->check(payload);
    if (!violation && !is_json(payload)) std::abort();
    if (violation && violation->rule.empty()) std::abort();
}

// A canonical text is the value's: read again it gives the same.
void read_document(std::string_view text) {
    std::string why;
    const auto document = schema::JsonDocument::read(text, why);
    if (!document) {
        if (why.empty()) std::abort();
        return;
    }
    if (!is_json(text)) std::abort();
    const schema::JsonValue& root = document->root();
    if (!root.is(schema::JsonValue::Kind::kNumber)) return;
    const schema::Decimal number(root.text());
    std::string canonical;
    number.append_to(canonical);
    if (!is_json(canonical) || number != schema::Decimal(canonical)) std::abort();
}

void answer(int status, std::string_view location, std::string_view body) {
    const auto read = schema::read_registered(status, location, body);
    const auto* fault = std::get_if<schema::RegistryFault>(&read);
    if (fault != nullptr && (fault->name.empty() || fault->text.empty())) std::abort();
    if (fault == nullptr && status != 200) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 2, size - 2});
    std::string_view bytes = copy;
    constexpr int kStatus[] = {200, 204, 301, 401, 403, 404, 422, 429, 500};
    switch (data[0] % 4) {
        case 0:
            answer(kStatus[data[1] % std::size(kStatus)], next_field(bytes), bytes);
            break;
        case 1:
            read_document(bytes);
            break;
        default: {
            const std::string_view schema = next_field(bytes);
            const std::string_view other = next_field(bytes);
            check(schema, other, bytes);
        }
    }
    return 0;
}
