#include "net/uuid5.h"

#include <array>
#include <cstddef>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "core/check.h"
#include "net/sha256.h"

namespace outbox::net {
namespace {

constexpr std::size_t kUuidBytes = 16;

int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Its 16 bytes; empty where it is none.
std::string bytes_of_uuid(std::string_view text) {
    std::string digits;
    for (const char c : text) {
        if (c != '-') digits += c;
    }
    std::string bytes;
    if (digits.size() != 2 * kUuidBytes) return bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
        const int high = digit_of(digits[i]);
        const int low = digit_of(digits[i + 1]);
        if (high < 0 || low < 0) return {};
        bytes += static_cast<char>(high * 16 + low);
    }
    return bytes;
}

std::string uuid_text(std::array<unsigned char, kUuidBytes> bytes, unsigned version) {
    bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0FU) | version << 4U);
    bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3FU) | 0x80U);
    std::string text = hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    for (const std::size_t at : {20U, 16U, 12U, 8U}) text.insert(at, "-");
    return text;
}

}  // namespace

std::string uuid5(std::string_view space, std::string_view name) {
    std::string text = bytes_of_uuid(space);
    if (text.empty()) return {};
    text += name;
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    const int made =
        EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr);
    OUTBOX_CHECK(made == 1 && size >= kUuidBytes, "OpenSSL has SHA-1");
    std::array<unsigned char, kUuidBytes> bytes{};
    for (std::size_t i = 0; i < kUuidBytes; ++i) bytes[i] = digest[i];
    return uuid_text(bytes, 5);
}

std::string uuid4() {
    std::array<unsigned char, kUuidBytes> bytes{};
    OUTBOX_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
                 "OpenSSL has random bytes");
    return uuid_text(bytes, 4);
}

}  // namespace outbox::net
