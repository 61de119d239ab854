# cmake -DROOT=src -DOUT=embedded_sql_data.cpp -P embed_sql.cmake
# Writes the SQL files under src/databases/*/migrations/ into a C++ table, sorted by path, each with its
# SHA-256. {{side_tables}}, {{status_view}} and the other parts below stand in a file for
# the file of that name beside it, or beside the consumer's.

file(GLOB files "${ROOT}/databases/*/migrations/*/*.sql")
set(rows "")
foreach(file IN LISTS files)
    file(READ "${file}" text)
    get_filename_component(folder "${file}" DIRECTORY)
    foreach(part side_tables mailbox webhooks event_checks audit status_view status_view_keep status_life take_over taken_over replays paused_tenants)
        if(text MATCHES "{{${part}}}")
            set(part_file "${folder}/${part}.sql")
            if(NOT EXISTS "${part_file}")
                set(part_file "${folder}/../consumer/${part}.sql")
            endif()
            file(READ "${part_file}" part_text)
            string(REPLACE "{{${part}}}" "${part_text}" text "${text}")
        endif()
    endforeach()
    string(SHA256 checksum "${text}")
    file(RELATIVE_PATH name "${ROOT}/databases" "${file}")
    string(REGEX REPLACE "^([a-z]+)/migrations/([a-z]+)/" "\\2/\\1/" name "${name}")
    string(APPEND rows "    {\"${name}\",\n     \"${checksum}\",\n"
           "     R\"outboxsql(${text})outboxsql\"},\n")
endforeach()
file(WRITE "${OUT}.new" "// Made by cmake/embed_sql.cmake.
#include \"core/embedded_sql.h\"

namespace outbox {
namespace {
constexpr EmbeddedSql kFiles[] = {
${rows}};
}  // namespace
std::span<const EmbeddedSql> embedded_sql() { return kFiles; }
}  // namespace outbox
")
file(RENAME "${OUT}.new" "${OUT}")
