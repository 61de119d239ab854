#include "journal.h"

#include "json_fields.h"

namespace orders {

void Journal::write(const JournalEntry& entry, const char* outcome) {
    if (!file_.is_open()) return;
    file_.append("{\"id\":" + json_string(entry.id) + ",\"key\":" + json_string(entry.key) +
                 ",\"n\":" + std::to_string(entry.n) + "," + outcome + "}\n");
}

}  // namespace orders
