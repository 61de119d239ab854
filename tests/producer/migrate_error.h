#pragma once

#include <string>

#include <outbox/error.h>
#include <outbox/producer/migrate.h>

namespace outbox::test {

/// What `migrate` throws.
inline ErrorInfo migrate_error(const std::string& url, const MigrateOptions& options = {}) {
    try {
        migrate(url, options);
    } catch (const Error& error) {
        return error.info();
    }
    return {ErrorCode::kInternal, Advice::kStop, "", "migrate did not fail"};
}

}  // namespace outbox::test
