#include "webhook/sealed_secrets.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <optional>

#include "core/base64.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "secrets/password_file.h"

namespace outbox::webhook {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kIdBytes = 4;  // of the hash
constexpr std::string_view kVersion = "v1.";
constexpr std::string_view kPurpose = "outbox webhook secrets ";  // and the endpoint's id

struct FreeContext {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

unsigned char* bytes_of(std::string& text) {
    return reinterpret_cast<unsigned char*>(text.data());
}

int size_of(std::string_view text) {
    return static_cast<int>(text.size());
}

ErrorInfo error(ErrorCode code, std::string message) {
    return {code, Advice::kStop, {}, std::move(message)};
}

std::string id_of(std::string_view key) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::string named = "outbox webhook key " + std::string(key);
    std::string hash(SHA256_DIGEST_LENGTH, '\0');
    SHA256(bytes_of(std::string_view(named)), named.size(), bytes_of(hash));
    std::string id;
    for (const char c : hash.substr(0, kIdBytes)) {
        const auto byte = static_cast<unsigned char>(c);
        id += kDigits[byte >> 4U];
        id += kDigits[byte & 15U];
    }
    return id;
}

// "whsec_... 1700000000\n", one a line.
std::string lines_of(const std::vector<Secret>& secrets) {
    std::string text;
    for (const Secret& secret : secrets) {
        text += secret.text + ' ' + std::to_string(secret.until_s) + '\n';
    }
    return text;
}

std::optional<std::vector<Secret>> secrets_of(std::string_view lines) {
    std::vector<Secret> secrets;
    while (!lines.empty()) {
        const auto end = lines.find('\n');
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view line = lines.substr(0, end);
        lines.remove_prefix(end + 1);
        const auto blank = line.find(' ');
        if (blank == std::string_view::npos) return std::nullopt;
        Secret secret{std::string(line.substr(0, blank)), 0};
        const char* last = line.data() + line.size();
        const auto read = std::from_chars(line.data() + blank + 1, last, secret.until_s);
        if (read.ec != std::errc() || read.ptr != last) return std::nullopt;
        secrets.push_back(std::move(secret));
    }
    if (secrets.empty()) return std::nullopt;
    return secrets;
}

// Nonce, ciphertext, tag.
std::optional<std::string> encrypt(std::string_view key, std::string_view bound_to,
                                   std::string_view plain) {
    std::string out(kNonceBytes + plain.size() + kTagBytes, '\0');
    if (RAND_bytes(bytes_of(out), static_cast<int>(kNonceBytes)) != 1) return std::nullopt;
    const Context context(EVP_CIPHER_CTX_new());
    unsigned char* cipher = bytes_of(out) + kNonceBytes;
    int size = 0;
    int rest = 0;
    const bool done =
        context != nullptr &&
        EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key),
                           bytes_of(std::string_view(out))) == 1 &&
        EVP_EncryptUpdate(context.get(), nullptr, &size, bytes_of(bound_to), size_of(bound_to)) ==
            1 &&
        EVP_EncryptUpdate(context.get(), cipher, &size, bytes_of(plain), size_of(plain)) == 1 &&
        EVP_EncryptFinal_ex(context.get(), cipher + size, &rest) == 1 &&
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(kTagBytes),
                            cipher + plain.size()) == 1;
    if (!done) return std::nullopt;
    return out;
}

std::optional<std::string> decrypt(std::string_view key, std::string_view bound_to,
                                   std::string_view sealed) {
    if (sealed.size() < kNonceBytes + kTagBytes) return std::nullopt;
    const std::string_view nonce = sealed.substr(0, kNonceBytes);
    std::string tag(sealed.substr(sealed.size() - kTagBytes));
    const std::string_view cipher =
        sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
    std::string plain(cipher.size(), '\0');
    const Context context(EVP_CIPHER_CTX_new());
    int size = 0;
    int rest = 0;
    const bool done = context != nullptr &&
                      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key),
                                         bytes_of(nonce)) == 1 &&
                      EVP_DecryptUpdate(context.get(), nullptr, &size, bytes_of(bound_to),
                                        size_of(bound_to)) == 1 &&
                      EVP_DecryptUpdate(context.get(), bytes_of(plain), &size, bytes_of(cipher),
                                        size_of(cipher)) == 1 &&
                      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG,
                                          static_cast<int>(kTagBytes), tag.data()) == 1 &&
                      EVP_DecryptFinal_ex(context.get(), bytes_of(plain) + size, &rest) == 1;
    if (!done) return std::nullopt;
    return plain;
}

}  // namespace

KeyRing::~KeyRing() {
    for (Key& key : keys_) OPENSSL_cleanse(key.bytes.data(), key.bytes.size());
}

Result<KeyRing> KeyRing::read(const std::string& path) {
    const auto text = read_secret(path, "webhook key file");
    if (!text.ok()) return text.status();
    auto ring = parse(*text);
    if (ring.ok()) return ring;
    // As of other files with secrets: it may be about to be written anew.
    return ErrorInfo{ring.error().code,
                     Advice::kRetryDestination,
                     {},
                     "webhook key file " + path + ": " + ring.error().message};
}

Result<KeyRing> KeyRing::parse(std::string_view text) {
    KeyRing ring;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        at = end + 1;
        while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
        if (line.empty()) continue;
        auto bytes = base64_decode(line);
        if (!bytes || bytes->size() != kKeyBytes) {
            return error(ErrorCode::kConfigInvalid,
                         "line " + std::to_string(ring.keys_.size() + 1) +
                             " is no key of 32 bytes in base64; make one with `openssl rand "
                             "-base64 32`");
        }
        std::string id = id_of(*bytes);
        ring.keys_.push_back({std::move(id), std::move(*bytes)});
    }
    if (ring.keys_.empty()) {
        return error(ErrorCode::kConfigInvalid,
                     "it has no key; make one with `openssl rand -base64 32`");
    }
    return ring;
}

Result<std::string> KeyRing::seal(std::string_view endpoint_id,
                                  const std::vector<Secret>& secrets) const {
    const Key& key = keys_.front();
    std::string plain = lines_of(secrets);
    const auto sealed = encrypt(key.bytes, std::string(kPurpose) + std::string(endpoint_id), plain);
    OPENSSL_cleanse(plain.data(), plain.size());
    if (!sealed) return error(ErrorCode::kInternal, "OpenSSL cannot encrypt the webhook's secret");
    std::string text = std::string(kVersion) + key.id + '.';
    append_base64(*sealed, text);
    return text;
}

bool KeyRing::knows(std::string_view sealed) const {
    if (!sealed.starts_with(kVersion)) return true;
    const std::string_view rest = sealed.substr(kVersion.size());
    return std::any_of(keys_.begin(), keys_.end(), [&](const Key& one) {
        return rest.starts_with(one.id) && rest.substr(one.id.size()).starts_with('.');
    });
}

Result<std::vector<Secret>> KeyRing::open(std::string_view endpoint_id,
                                          std::string_view sealed) const {
    const std::string whose = "the secret of webhook endpoint " + to_printable(endpoint_id) + ' ';
    const auto invalid = [&](const std::string& why) {
        return error(ErrorCode::kConfigInvalid, whose + why);
    };
    const auto altered = [&] {
        return invalid(
            "cannot be opened: what the table holds was altered, or is another endpoint's; give it "
            "a new one with `outbox webhook rotate ID --overlap 0s`");
    };
    if (!sealed.starts_with(kVersion)) return altered();
    const std::string_view rest = sealed.substr(kVersion.size());
    const auto dot = rest.find('.');
    if (dot == std::string_view::npos) return altered();
    const std::string_view id = rest.substr(0, dot);
    const auto key =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key& one) { return one.id == id; });
    if (key == keys_.end()) {
        return invalid("is stored under the key " + to_printable(id.substr(0, 2 * kIdBytes)) +
                       ", which is not in the key file (its first one is " + key_id() +
                       "); add the former key as a further line");
    }
    const auto bytes = base64_decode(rest.substr(dot + 1));
    if (!bytes) return altered();
    auto plain = decrypt(key->bytes, std::string(kPurpose) + std::string(endpoint_id), *bytes);
    if (!plain) return altered();
    auto secrets = secrets_of(*plain);
    OPENSSL_cleanse(plain->data(), plain->size());
    if (!secrets) return altered();
    return std::move(*secrets);
}

std::vector<Secret> in_force(const std::vector<Secret>& secrets, std::int64_t now_s) {
    std::vector<Secret> current;
    std::copy_if(secrets.begin(), secrets.end(), std::back_inserter(current),
                 [&](const Secret& one) { return one.until_s == 0 || one.until_s > now_s; });
    return current;
}

}  // namespace outbox::webhook
