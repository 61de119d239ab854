// What a record of each format costs the relay: an event of the table of `outbox migrate` becomes
// one, in batches of 500. bench_formats [Google Benchmark's options]

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <string>

#include "codec/formats.h"

namespace {

using namespace outbox;

constexpr std::size_t kBatchEvents = 500;
constexpr std::size_t kPayloadBytes = 200;

// The columns that a record of Debezium needs.
spi::RowShape table_shape() {
    spi::RowShape shape;
    shape.schema = "public";
    shape.table = "outbox_events";
    shape.fields = {{"id", "id"},
                    {"aggregate_type", "aggregate_type"},
                    {"aggregate_id", "aggregate_id"},
                    {"payload", "payload"}};
    shape.columns = {{.name = "id", .type = "uuid", .nullable = false},
                     {.name = "aggregate_type", .type = "text"},
                     {.name = "aggregate_id", .type = "text"},
                     {.name = "payload", .type = "jsonb"}};
    return shape;
}

// Debezium's names of the columns are others.
std::map<std::string, std::string> options_of(const codec::Format& format) {
    if (format.name != "debezium") return {};
    return {{"debezium.route.by.field", "aggregate_type"},
            {"debezium.table.field.event.key", "aggregate_id"},
            {"debezium.key", "simplestring"},
            {"debezium.value", "simplestring"}};
}

// `is_jsonb`: the reader knows that the payload is JSON; else who must know has to look.
void encode(benchmark::State& state, const codec::Format& format, bool is_jsonb,
            std::string_view headers) {
    const std::string payload = "{\"text\": \"" + std::string(kPayloadBytes - 12, 'x') + "\"}";
    spi::EventView event;
    event.id = "01939d3e-7c00-7aaa-8000-000000000001";
    event.aggregate_type = "Order";
    event.aggregate_id = "o-123456";
    event.event_type = "OrderCreated";
    event.payload = payload;
    event.payload_is_json = is_jsonb;
    event.headers = headers;
    event.tenant_id = "default";
    const spi::RowShape shape = table_shape();
    auto make = format.make({options_of(format), "public.outbox_events", {}, &shape});
    if (!make.ok()) std::abort();
    const auto encoder = (*make)();
    spi::EventBatch arena;
    std::int64_t time_us = 1'700'000'000'000'000;
    for (auto _ : state) {
        arena.clear();
        for (std::size_t i = 0; i < kBatchEvents; ++i) {
            event.occurred_at_us = ++time_us;
            auto record = encoder->encode(event, "order-events", arena);
            if (!record.ok()) std::abort();
            benchmark::DoNotOptimize(record);
        }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatchEvents));
}

}  // namespace

int main(int argc, char** argv) {
    for (const codec::Format& format : codec::formats()) {
        const std::string name(format.name);
        const auto add = [&](const char* what, bool is_jsonb, std::string_view headers) {
            benchmark::RegisterBenchmark((name + "/" + what).c_str(),
                                         [&format, is_jsonb, headers](benchmark::State& state) {
                                             encode(state, format, is_jsonb, headers);
                                         });
        };
        add("jsonb", true, {});
        add("text", false, {});
        add("headers", true,
            R"({"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"})");
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
