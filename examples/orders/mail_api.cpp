#include "mail_api.h"

#include <fstream>

#include "json_fields.h"

namespace orders {

MailApi::MailApi(const std::string& path) : calls_("mails", path) {
    std::ifstream calls(path);
    for (std::string line; std::getline(calls, line);)
        known_.insert(read_json_fields(line).fields["idempotency_key"].text);
}

void MailApi::send(const std::string& idempotency_key, const std::string& to,
                   const std::string& body) {
    const std::lock_guard lock(mutex_);
    const bool is_new = !known_.contains(idempotency_key);
    calls_.append("{\"idempotency_key\":" + json_string(idempotency_key) +
                  ",\"to\":" + json_string(to) + ",\"body\":" + json_string(body) +
                  ",\"sent\":" + (is_new ? "true" : "false") + "}\n");
    known_.insert(idempotency_key);
}

}  // namespace orders
