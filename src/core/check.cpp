#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace outbox::core {

void check_failed(const char* file, int line, const char* condition, const char* message) {
    std::fprintf(stderr, "%s:%d: %s, but not: %s\n", file, line, message, condition);
    std::abort();
}

}  // namespace outbox::core
