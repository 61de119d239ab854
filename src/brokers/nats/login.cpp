#include "brokers/nats/login.h"

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <vector>

#include "brokers/nats/errors.h"
#include "core/redact.h"
#include "net/certificates.h"
#include "secrets/password_file.h"

namespace outbox::nats {
namespace {

using nlohmann::json;

constexpr std::string_view kBase32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
constexpr std::size_t kKeyBytes = 32;  // of a seed and of a public key
constexpr std::size_t kPrefixBytes = 2;
constexpr std::size_t kChecksumBytes = 2;
constexpr std::size_t kSignatureBytes = 64;
constexpr unsigned char kUserPrefix = 20U << 3U;  // makes the first letter a U

ErrorInfo unusable(const std::string& why) {
    return to_error({"CREDS", why}, "the credentials");
}

// RFC 4648, without padding.
bool decode_base32(std::string_view text, std::vector<unsigned char>& out) {
    unsigned value = 0;
    unsigned bits = 0;
    for (const char c : text) {
        const std::size_t digit = kBase32.find(c);
        if (digit == std::string_view::npos) return false;
        value = (value << 5U | static_cast<unsigned>(digit)) & 0xFFFFU;
        bits += 5;
        if (bits < 8) continue;
        bits -= 8;
        out.push_back(static_cast<unsigned char>(value >> bits & 0xFFU));
    }
    return true;
}

std::string encode_base32(const std::vector<unsigned char>& bytes) {
    std::string text;
    unsigned value = 0;
    unsigned bits = 0;
    for (const unsigned char byte : bytes) {
        value = (value << 8U | byte) & 0xFFFFU;
        for (bits += 8; bits >= 5; bits -= 5) text += kBase32[value >> (bits - 5) & 0x1FU];
    }
    if (bits > 0) text += kBase32[value << (5 - bits) & 0x1FU];
    return text;
}

// CRC-16/XMODEM.
unsigned checksum_of(const std::vector<unsigned char>& bytes, std::size_t count) {
    unsigned crc = 0;
    for (std::size_t i = 0; i < count; ++i) {
        crc ^= static_cast<unsigned>(bytes[i]) << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 0x8000U) != 0 ? (crc << 1U ^ 0x1021U) & 0xFFFFU : crc << 1U & 0xFFFFU;
        }
    }
    return crc;
}

std::string base64_url(const unsigned char* bytes, std::size_t size) {
    std::string text(4 * ((size + 2) / 3), '\0');
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes, static_cast<int>(size));
    while (text.ends_with('=')) text.pop_back();
    for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
    return text;
}

// The line between "-----BEGIN `what`-----" and the next line of dashes.
std::string section_of(std::string_view creds, std::string_view what) {
    const std::string begin = "BEGIN " + std::string(what);
    std::size_t at = creds.find(begin);
    if (at == std::string_view::npos) return {};
    at = creds.find('\n', at);
    if (at == std::string_view::npos) return {};
    const std::size_t end = creds.find("---", at);
    std::string section;
    for (const char c : creds.substr(at, end == std::string_view::npos ? end : end - at)) {
        if (c > ' ') section += c;
    }
    return section;
}

Status add_credentials(const NatsConfig& config, const ServerInfo& server, json& connect) {
    const auto creds = read_password(config.creds_file);
    if (!creds.ok()) return creds.error();
    const std::string token = section_of(*creds, "NATS USER JWT");
    std::string seed = section_of(*creds, "USER NKEY SEED");
    if (seed.empty() && creds->find("BEGIN") == std::string::npos) seed = *creds;
    if (seed.empty()) return unusable(config.creds_file + " has no seed");
    remember_secret(token);
    remember_secret(seed);
    const auto signature = sign(server.nonce, seed);
    if (!signature.ok()) return signature.error();
    if (token.empty()) {
        connect["nkey"] = signature->public_key;
    } else {
        connect["jwt"] = token;
    }
    connect["sig"] = signature->text;
    return {};
}

struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

Result<ServerInfo> read_info(std::string_view text) {
    const json info = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!info.is_object()) {
        return to_error({"ENDED", "it does not speak NATS' protocol"}, "the server");
    }
    const auto flag = [&](const char* name) {
        const auto found = info.find(name);
        return found != info.end() && found->is_boolean() && found->get<bool>();
    };
    const auto word = [&](const char* name) {
        const auto found = info.find(name);
        return found != info.end() && found->is_string() ? found->get<std::string>()
                                                         : std::string();
    };
    ServerInfo server;
    server.headers = flag("headers");
    server.tls_wanted = flag("tls_required");
    server.tls_offered = flag("tls_available");
    const auto most = info.find("max_payload");
    if (most != info.end() && most->is_number_unsigned()) {
        server.max_payload = most->get<std::size_t>();
    }
    server.nonce = word("nonce");
    server.version = word("version");
    server.cluster = word("cluster");
    return server;
}

Result<std::string> connect_line(const NatsConfig& config, const ServerInfo& server,
                                 std::string_view as) {
    json connect = {{"verbose", false},      {"pedantic", false}, {"headers", true},
                    {"no_responders", true}, {"protocol", 1},     {"name", as},
                    {"lang", "outbox"},      {"version", "1"},    {"tls_required", config.tls}};
    if (!config.creds_file.empty()) {
        if (Status added = add_credentials(config, server, connect); !added.ok()) return added;
    } else {
        const auto password = net::password_of(config);
        if (!password.ok()) return password.error();
        if (config.user.empty()) {
            if (!password->empty()) connect["auth_token"] = *password;
        } else {
            connect["user"] = config.user;
            connect["pass"] = *password;
        }
    }
    return "CONNECT " + connect.dump(-1, ' ', false, json::error_handler_t::replace) + "\r\n";
}

Status check_files(const NatsConfig& config) {
    json ignored;
    Status usable;
    if (!config.creds_file.empty()) usable = add_credentials(config, {}, ignored);
    if (usable.ok()) return net::check_files(config);
    return {usable.error().code, Advice::kStop, usable.error().message};
}

Result<Signature> sign(std::string_view nonce, std::string_view seed) {
    std::vector<unsigned char> bytes;
    const std::size_t checked = kPrefixBytes + kKeyBytes;
    if (!decode_base32(seed, bytes) || bytes.size() < checked + kChecksumBytes) {
        return unusable("this is no seed");
    }
    const unsigned expected = bytes[checked] | static_cast<unsigned>(bytes[checked + 1]) << 8U;
    if (!seed.starts_with("SU") || checksum_of(bytes, checked) != expected) {
        return unusable("this is no seed of a user, or a part of it is missing");
    }
    const std::unique_ptr<EVP_PKEY, FreeKey> key(EVP_PKEY_new_raw_private_key(
        EVP_PKEY_ED25519, nullptr, bytes.data() + kPrefixBytes, kKeyBytes));
    const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
    std::array<unsigned char, kSignatureBytes> signature{};
    std::size_t length = signature.size();
    std::vector<unsigned char> known(1 + kKeyBytes, kUserPrefix);
    std::size_t known_length = kKeyBytes;
    if (key == nullptr ||
        EVP_PKEY_get_raw_public_key(key.get(), known.data() + 1, &known_length) != 1 ||
        EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
        EVP_DigestSign(context.get(), signature.data(), &length,
                       reinterpret_cast<const unsigned char*>(nonce.data()), nonce.size()) != 1) {
        return unusable("the nonce cannot be signed");
    }
    const unsigned checksum = checksum_of(known, known.size());
    known.push_back(static_cast<unsigned char>(checksum & 0xFFU));
    known.push_back(static_cast<unsigned char>(checksum >> 8U));
    return Signature{encode_base32(known), base64_url(signature.data(), length)};
}

}  // namespace outbox::nats
