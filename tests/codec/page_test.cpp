// docs/formats.md shows what the encoders make.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "codec/formats.h"
#include "tests/codec/debezium_rows.h"

namespace outbox::codec {
namespace {

std::string page() {
    std::ifstream file(FORMATS_PAGE);
    return {std::istreambuf_iterator<char>(file), {}};
}

// As `outbox migrate` has it, with its payload as jsonb prints it.
spi::EventView event_of_the_page() {
    spi::EventView event;
    event.position = 1;
    event.id = "01939d3e-7c00-7aaa-8000-000000000001";
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1001";
    event.event_type = "OrderPlaced";
    event.payload = R"({"total": 99.90})";
    event.payload_is_json = true;
    event.headers = R"({"region": "eu", "x-request-id": "r-7",)"
                    R"( "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"})";
    event.tenant_id = "default";
    event.schema_id = "orders-value";
    event.schema_version = "3";
    event.occurred_at_us = 1'767'225'599'000'042;
    return event;
}

std::string shown(const Format& format, const spi::AttributeNames& names) {
    spi::EventBatch arena;
    const spi::RowShape shape = debezium_rows();
    std::map<std::string, std::string> options;
    if (format.name == "debezium") {
        options = {{"debezium.key", "simplestring"}, {"debezium.value", "simplestring"}};
    }
    const auto encoder = (*format.make({options, "public.outbox_events", names, &shape}))();
    const spi::EventView event = event_of_the_page();
    const auto record = encoder->encode(event, "order-events", arena);
    EXPECT_TRUE(record.ok());
    std::string text = "key: " + std::string(record->key) + "\n";
    for (const auto& [name, value] : record->headers) {
        text += std::string(name) + ": " + std::string(value) + "\n";
    }
    return text + "\n" + std::string(record->value) + "\n";
}

TEST(FormatsPage, ShowsOneEventInEachFormatAsItIsWritten) {
    const std::string text = page();
    for (const Format& format : formats()) {
        const std::string block = "## " + std::string(format.name) + "\n";
        EXPECT_NE(text.find(block), std::string::npos) << "no section for " << format.name;
        const std::string example = "```\n" + shown(format, {}) + "```\n";
        EXPECT_NE(text.find(example), std::string::npos) << "write into " FORMATS_PAGE ":\n"
                                                         << example;
    }
}

}  // namespace
}  // namespace outbox::codec
