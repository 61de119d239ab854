// What one event of PostgreSQL's log costs the relay: envelope, message and row, as the stream
// takes them, into batches of 500. bench_decoder [Google Benchmark's options]

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <string>

#include "databases/postgres/stream/row_decoder.h"
#include "tests/databases/postgres/pgoutput_bytes.h"

namespace {

using namespace outbox;
using test::Bytes;

constexpr std::int64_t kTable = 16'400;
constexpr std::size_t kBatchEvents = 500;

// The table of `outbox migrate`.
postgres::StreamTable native_table() {
    postgres::StreamTable table;
    table.oid = kTable;
    table.schema = "public";
    table.name = "outbox_events";
    table.id_prefix = "public.outbox_events:";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        table.columns[i] = postgres::field_name(static_cast<postgres::RowColumn>(i));
    }
    return table;
}

std::string relation() {
    Bytes bytes;
    const postgres::StreamTable table = native_table();
    bytes.byte('R').int32(kTable).text("public").text("outbox_events").byte('d');
    bytes.int16(static_cast<std::int64_t>(table.columns.size()));
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        std::int64_t type = 25;
        if (i == postgres::kPosition) type = 20;
        if (i == postgres::kId) type = 2950;
        if (i == postgres::kPayload || i == postgres::kHeaders) type = 3802;
        if (i == postgres::kOccurredAt) type = 1184;
        bytes.column(table.columns[i], type);
    }
    return bytes.str();
}

std::string insert(std::size_t payload_bytes) {
    Bytes row;
    row.byte('I').int32(kTable).byte('N').int16(14);
    row.binary(test::big_endian(123'456)).binary("0123456789abcdef");
    row.binary("Order").binary("o-123456").binary("OrderCreated");
    row.binary("\1\"" + std::string(payload_bytes - 2, 'x') + "\"").null();
    row.binary("default").null().null().binary(test::big_endian(757'382'400'000'000));
    row.null().null().null();
    return Bytes().byte('w').int64(1).int64(2).int64(3).raw(row).str();
}

void decode_event(benchmark::State& state) {
    postgres::RowDecoder decoder(native_table());
    postgres::pgoutput::Message message;
    postgres::pgoutput::Envelope envelope;
    spi::EventBatch batch;
    const std::string announced = relation();
    const std::string bytes = insert(static_cast<std::size_t>(state.range(0)));
    if (!parse_message(announced, message).ok() || !decoder.decode(message, batch).ok()) {
        std::abort();
    }
    for (auto step : state) {
        if (!parse_envelope(bytes, envelope).ok() ||
            !parse_message(envelope.message, message).ok() ||
            !decoder.decode(message, batch).ok()) {
            std::abort();
        }
        if (batch.size() == kBatchEvents) batch.clear();
    }
    state.SetItemsProcessed(state.iterations());
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

BENCHMARK(decode_event)->ArgName("payload_bytes")->Arg(200)->Arg(2'000)->Arg(20'000);

}  // namespace

BENCHMARK_MAIN();
