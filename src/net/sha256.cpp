#include "net/sha256.h"

#include <array>
#include <openssl/evp.h>

namespace outbox::net {

std::string hex(std::string_view bytes) {
    constexpr std::string_view kHexDigits = "0123456789abcdef";
    std::string out;
    out.reserve(2 * bytes.size());
    for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        out += kHexDigits[value >> 4U];
        out += kHexDigits[value & 15U];
    }
    return out;
}

std::string sha256_hex(std::string_view bytes) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
    unsigned size = 0;
    EVP_Digest(bytes.data(), bytes.size(), out.data(), &size, EVP_sha256(), nullptr);
    return hex({reinterpret_cast<const char*>(out.data()), size});
}

}  // namespace outbox::net
