#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "databases/postgres/source/position_reader.h"
#include "databases/postgres/stream/table.h"
#include "tests/databases/postgres/support.h"

namespace outbox::test {

// What one decoder made of a piece of the log. The views live as long as `batch`.
struct Decoded {
    spi::EventBatch batch;
    std::vector<spi::Position> other_tenants;
    Status status;  // the first error; nothing behind it was decoded
};

// One outbox table, its publication and a slot from which the log is taken as pgoutput writes it.
class LoggedTable {
  public:
    LoggedTable(const std::string& url, const postgres::PostgresSourceConfig& config)
        : config_(config),
          pg_(url),
          connection_(value_of(postgres::Connection::open(url, 60))),
          table_(value_of(postgres::resolve_table(connection_, config))),
          slot_("decoder_" + pg_.value("SELECT current_database()")) {
        pg_.exec("DROP PUBLICATION IF EXISTS outbox; CREATE PUBLICATION outbox FOR TABLE " +
                 table_.sql + " WITH (publish = 'insert', publish_via_partition_root = true)");
        pg_.exec("SELECT pg_create_logical_replication_slot('" + slot_ + "', 'pgoutput')");
    }
    ~LoggedTable() {
        pg_.exec("SELECT pg_drop_replication_slot('" + slot_ + "'); DROP PUBLICATION outbox");
    }
    LoggedTable(const LoggedTable&) = delete;
    LoggedTable& operator=(const LoggedTable&) = delete;

    Pg& pg() { return pg_; }
    const postgres::Table& table() const { return table_; }

    postgres::StreamTable described() {
        return value_of(postgres::describe_for_stream(connection_, table_, config_));
    }
    postgres::RowDecoder decoder() { return postgres::RowDecoder(described()); }

    // The messages written since the last call.
    std::vector<std::string> messages() {
        const std::string sql = "SELECT data FROM pg_logical_slot_get_binary_changes('" + slot_ +
                                "', NULL, NULL, 'proto_version', '1', 'publication_names', "
                                "'outbox', 'binary', 'true')";
        const std::unique_ptr<PGresult, decltype(&PQclear)> result(
            PQexecParams(pg_.handle(), sql.c_str(), 0, nullptr, nullptr, nullptr, nullptr, 1),
            PQclear);
        if (PQresultStatus(result.get()) != PGRES_TUPLES_OK) {
            throw std::runtime_error(PQerrorMessage(pg_.handle()));
        }
        std::vector<std::string> messages;
        for (int row = 0; row < PQntuples(result.get()); ++row) {
            messages.emplace_back(PQgetvalue(result.get(), row, 0),
                                  static_cast<std::size_t>(PQgetlength(result.get(), row, 0)));
        }
        return messages;
    }

    Decoded decode(postgres::RowDecoder& decoder) {
        Decoded decoded;
        postgres::pgoutput::Message message;
        for (const std::string& bytes : messages()) {
            decoded.status = postgres::pgoutput::parse_message(bytes, message);
            if (!decoded.status.ok()) return decoded;
            const auto row = decoder.decode(message, decoded.batch);
            decoded.status = row.status();
            if (!row.ok()) return decoded;
            if (*row == postgres::RowDecoder::Row::kOtherTenant) {
                decoded.other_tenants.push_back(decoder.position());
            }
        }
        return decoded;
    }

    // What the table reader makes of all rows.
    spi::EventBatch read() {
        postgres::Identity identity(table_);
        postgres::PositionReader reader(config_, table_, identity, {});
        spi::EventBatch batch;
        std::size_t before = 0;
        do {
            before = batch.size();
            require(reader.read({1000, std::size_t{1} << 26U}, batch));
        } while (batch.size() > before);
        return batch;
    }

  private:
    postgres::PostgresSourceConfig config_;
    Pg pg_;
    postgres::Connection connection_;
    postgres::Table table_;
    std::string slot_;
};

// A field in a form that tells NULL from empty.
inline std::string shown(std::string_view field) {
    return field.data() == nullptr ? "NULL" : "'" + std::string(field) + "'";
}

inline std::string shown(const spi::EventView& event) {
    std::string text = std::to_string(event.position);
    const auto add = [&](const char* name, std::string_view field) {
        text += std::string("\n  ") + name + " " + shown(field);
    };
    add("id", event.id);
    add("aggregate_type", event.aggregate_type);
    add("aggregate_id", event.aggregate_id);
    add("event_type", event.event_type);
    add("payload", event.payload);
    add("headers", event.headers);
    add("tenant_id", event.tenant_id);
    add("schema_id", event.schema_id);
    add("schema_version", event.schema_version);
    add("topic", event.topic);
    add("key", event.key);
    add("routing_key", event.routing_key);
    add("metadata", event.metadata);
    text += "\n  occurred_at " + std::to_string(event.occurred_at_us) + "\n  attempts " +
            std::to_string(event.attempts) + "\n  next_attempt " +
            std::to_string(event.next_attempt_us);
    return text;
}

// Both in position order, field by field.
inline std::vector<std::string> shown(const spi::EventBatch& batch) {
    std::vector<std::string> all;
    std::vector<spi::EventView> events = batch.events();
    std::sort(events.begin(), events.end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    for (const spi::EventView& event : events) all.push_back(shown(event));
    return all;
}

}  // namespace outbox::test
