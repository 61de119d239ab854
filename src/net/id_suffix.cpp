#include "net/id_suffix.h"

#include <array>
#include <cstdio>
#include <xxhash.h>

namespace outbox::net {

std::string id_suffix(std::string_view producer) {
    std::array<char, 1 + 16 + 1> text{};
    std::snprintf(text.data(), text.size(), "@%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(producer.data(), producer.size())));
    return text.data();
}

}  // namespace outbox::net
