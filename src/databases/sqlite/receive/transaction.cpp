#include "databases/sqlite/receive/transaction.h"

namespace outbox::consumer {

void require_transaction(sqlite3* database, const std::string& who) {
    if (sqlite::in_transaction(database)) return;
    throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                who +
                    " needs the open transaction that applies the message or request: call it "
                    "between BEGIN IMMEDIATE and COMMIT");
}

std::string quoted_name(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '.') {
            out += "\".\"";
            continue;
        }
        if (c == '"') out += '"';
        out += c;
    }
    return out + "\"";
}

}  // namespace outbox::consumer
