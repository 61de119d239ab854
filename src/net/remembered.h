#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/mutex.h"

namespace outbox::net {

/// What this process knows of a server under that name, or nothing yet: one `Known` for each name,
/// which are few. It outlives sinks, as each term of a relay makes its own. Thread-safe; what it
/// gives is not.
template <typename Known>
std::shared_ptr<Known> remembered(const std::string& name) {
    static core::Mutex mutex;
    static std::map<std::string, std::shared_ptr<Known>> all;
    const core::Lock lock(mutex);
    auto& known = all[name];
    if (known == nullptr) known = std::make_shared<Known>();
    return known;
}

}  // namespace outbox::net
