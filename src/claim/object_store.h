#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::claim {

/// Where payloads are kept. Used by one thread. Calls block up to their own timeouts, and end
/// within 100 ms of `stop` where they wait for a server.
///
/// Advice of errors: retry_destination (it is away, takes us not now, or refuses who we are), else
/// the object's.
class ObjectStore {
  public:
    ObjectStore() = default;
    ObjectStore(const ObjectStore&) = delete;
    ObjectStore& operator=(const ObjectStore&) = delete;
    virtual ~ObjectStore() = default;

    /// Its URL without secrets; an object is there at "URL/NAME".
    [[nodiscard]] virtual const std::string& url() const = 0;
    /// Writes an object whole, durably, over one of the same name. A reader sees all or nothing.
    virtual Status put(std::string_view name, std::string_view bytes,
                       const std::stop_token& stop) = 0;
    /// Errors: also kObjectGone/dead_letter, and kPayloadTooLarge/dead_letter beyond `max_bytes`.
    virtual Result<std::string> get(std::string_view name, std::size_t max_bytes,
                                    const std::stop_token& stop) = 0;
};

/// Writes and reads an object of a few bytes, which stays: its name is always the same.
Status check(ObjectStore& store);
[[nodiscard]] const std::string& probe_name();

[[nodiscard]] ErrorInfo object_gone(const ObjectStore& store, std::string_view name);
/// It is not there, and the reference leads to `elsewhere`, the URL of another store.
[[nodiscard]] ErrorInfo object_elsewhere(const ObjectStore& store, std::string_view name,
                                         std::string_view elsewhere);
/// Nothing was ever written there: it is another store than was meant, or its table was taken away.
/// `where`: " in schema s".
[[nodiscard]] ErrorInfo no_object_table(const ObjectStore& store, std::string_view where);
[[nodiscard]] ErrorInfo object_too_large(const ObjectStore& store, std::string_view name,
                                         std::size_t max_bytes);

}  // namespace outbox::claim
