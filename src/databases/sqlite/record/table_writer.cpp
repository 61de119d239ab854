#include "databases/sqlite/record/table_writer.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "core/sql_text.h"

namespace outbox::sqlite {
namespace {

std::string set_column(const Table& table, const std::string& field, const std::string& value) {
    return quote_identifier(table.column(field)) + " = " + value;
}

std::string join(const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
    return out;
}

// SQLite enforces no varchar(n), but the team's other programs may rely on it.
std::string cut_to_fit(const Table& table, const std::string& value) {
    const std::string& type = table.catalog.at(table.column("error_message"));
    const auto open = type.find('(');
    const int length = open == std::string::npos ? 0 : std::atoi(type.c_str() + open + 1);
    return length > 0 ? "substr(" + value + ", 1, " + std::to_string(length) + ")" : value;
}

}  // namespace

TableWriter::TableWriter(const Table& table) {
    const std::string row = table.native ? "t.position = ?1" : table.quoted("id") + " = ?1";
    const std::string update = "UPDATE " + table.sql + " AS t SET ";
    deleted = "DELETE FROM outbox_delivery WHERE source = ?1";
    if (table.native) {
        deleted += " AND position NOT IN (SELECT position FROM " + table.sql + ")";
    } else {
        for (const std::string& event_id : event_ids(table)) {
            deleted += " AND event_id NOT IN (SELECT " + event_id + " FROM " + table.sql +
                       " AS t WHERE " + any_unfinished(table) + ")";
        }
        deleted +=
            " AND instr(event_id, " + quote_literal(table.id_prefix()) + " || 'xxh128:') = 0";
    }
    if (!table.mark) {
        published = "DELETE FROM " + table.sql + " AS t WHERE " + row + " AND ?2 > 0";
        dead = published;
        return;
    }
    const TableMapping& mapping = table.mapping;
    published = update + finished_columns(table, mapping.sent_value, true, "?2") + " WHERE " + row +
                " AND ?2 > 0";
    // What the owner has finished by hand stays so.
    dead = update + finished_columns(table, mapping.dead_value, false, "?2") + " WHERE " + row +
           " AND ?2 > 0 AND " + any_unfinished(table);
    attempt = attempt_sql(table, false);
    last_attempt = attempt_sql(table, true);
    if (table.has("status")) {
        redelivered = update + finished_columns(table, mapping.sent_value, true, "?3") + " WHERE " +
                      table.quoted("id") + " IN (?1, ?2) AND ?3 > 0 AND " + table.quoted("status") +
                      " = " + quote_literal(mapping.dead_value);
    }
    const std::string condition = prunable_rows(table);
    if (condition.empty()) return;
    prunable = "SELECT count(*) FROM " + table.sql + " AS t WHERE " + condition;
    // Not by rowid, which a table may lack and a column of the owner's may be named. The condition
    // stands twice, since nothing says that an id is unique.
    prune = "DELETE FROM " + table.sql + " AS t WHERE " + table.quoted("id") + " IN (SELECT " +
            table.quoted("id") + " FROM " + table.sql + " AS t WHERE " + condition +
            " LIMIT ?2) AND " + condition;
    const std::string place = "t." + table.order;
    prunable_ids = "SELECT typeof(" + table.quoted("id") + "), " + table.quoted("id") + ", " +
                   place + " FROM " + table.sql + " AS t WHERE " + condition + " AND " + place +
                   " > ?2 ORDER BY " + place + " LIMIT ?3";
    prune_one = "DELETE FROM " + table.sql + " AS t WHERE " + condition + " AND " +
                table.quoted("id") + " = ?2";
}

std::string TableWriter::finished_columns(const Table& table, const std::string& status, bool sent,
                                          const std::string& now) const {
    std::vector<std::string> sets;
    if (table.has("status")) {
        sets.push_back(set_column(table, "status", quote_literal(status)));
        if (table.has("retry_after")) sets.push_back(set_column(table, "retry_after", "NULL"));
    }
    if (table.has("processed")) sets.push_back(set_column(table, "processed", "1"));
    // Without a status column the time is what says that the row is finished.
    const bool state = !table.has("status") && !table.has("processed");
    for (const char* field : {"processed_at", "published_at"}) {
        if (table.has(field) && (sent || state)) {
            sets.push_back(set_column(table, field, time_for(table, field, now)));
        }
    }
    return join(sets);
}

std::string TableWriter::attempt_sql(const Table& table, bool last) const {
    std::vector<std::string> sets;
    if (!last && table.has("status") && !table.mapping.failed_value.empty()) {
        sets.push_back(set_column(table, "status", quote_literal(table.mapping.failed_value)));
    }
    if (table.has("retry_count")) sets.push_back(set_column(table, "retry_count", "?2"));
    if (table.has("retry_after") && !last) {
        sets.push_back(set_column(table, "retry_after", time_for(table, "retry_after", "?3")));
    }
    if (table.has("error_message")) {
        sets.push_back(set_column(table, "error_message", cut_to_fit(table, "?4")));
    }
    if (sets.empty()) return {};
    return "UPDATE " + table.sql + " AS t SET " + join(sets) + " WHERE " + table.quoted("id") +
           " = ?1 AND ?2 >= 0 AND ?3 >= 0 AND ?4 IS NOT NULL AND " + any_unfinished(table);
}

std::string TableWriter::prunable_rows(const Table& table) const {
    std::string time;
    for (const char* field : {"published_at", "processed_at"}) {
        if (table.has(field) && time.empty()) time = table.quoted(field);
    }
    if (time.empty() && !table.created_at.empty()) {
        time = "t." + quote_identifier(table.created_at);
    }
    if (time.empty()) return {};
    std::string finished = time + " IS NOT NULL";
    if (table.has("status")) {
        finished = table.quoted("status") + " = " + quote_literal(table.mapping.sent_value);
    } else if (table.has("processed")) {
        finished = table.quoted("processed") + " = 1";
    }
    // Of whichever tenants' relay: who prunes may serve others.
    const std::string source = quote_literal(table.name + "/");
    const std::string not_dead =
        table.has_side_tables
            ? " AND NOT EXISTS (SELECT 1 FROM outbox_dead_letters d WHERE d.id IN (" +
                  event_ids(table)[0] + ", " + event_ids(table)[1] +
                  ") AND substr(d.source || '/', 1, length(" + source + ")) = " + source + ")"
            : std::string();
    // The row with the highest number stays: SQLite would give its number to the next row.
    const std::string not_last =
        table.integer_id ? " AND " + table.quoted("id") + " < (SELECT max(" +
                               quote_identifier(table.column("id")) + ") FROM " + table.sql + ")"
                         : "";
    return finished + " AND " + microseconds_of(time) + " < ?1" + not_dead + not_last;
}

}  // namespace outbox::sqlite
