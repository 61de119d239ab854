#include "webhook/signature.h"

#include <array>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <utility>

#include "core/base64.h"

namespace outbox::webhook {
namespace {

constexpr std::string_view kSymmetric = "whsec_";
constexpr std::string_view kPrivate = "whsk_";
constexpr std::string_view kPublic = "whpk_";
constexpr std::size_t kLeastBytes = 24;
constexpr std::size_t kMostBytes = 64;
constexpr std::size_t kNewBytes = 32;
constexpr std::size_t kKeyBytes = 32;        // of Ed25519, each half
constexpr std::size_t kSignatureBytes = 64;  // of Ed25519
constexpr std::size_t kHmacBytes = 32;

struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
struct FreeMac {
    void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
    void operator()(EVP_MAC_CTX* mac) const { EVP_MAC_CTX_free(mac); }
};
using Mac = std::unique_ptr<EVP_MAC_CTX, FreeMac>;
using Ed25519Key = std::unique_ptr<EVP_PKEY, FreeKey>;

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

unsigned char* bytes_of(std::string& text) {
    return reinterpret_cast<unsigned char*>(text.data());
}

ErrorInfo invalid(const std::string& why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "the webhook secret " + why +
                "; `whsec_` and 24 to 64 bytes in base64 sign with HMAC-SHA256 (v1), `whsk_` and "
                "an Ed25519 key sign with that (v1a)"};
}

ErrorInfo not_made(const std::string& what) {
    return {ErrorCode::kInternal, Advice::kStop, {}, "OpenSSL makes no " + what};
}

Ed25519Key key_of(std::string_view seed) {
    return Ed25519Key(
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes_of(seed), seed.size()));
}

std::string public_half(const EVP_PKEY* key) {
    std::string half(kKeyBytes, '\0');
    std::size_t size = half.size();
    if (EVP_PKEY_get_raw_public_key(key, bytes_of(half), &size) != 1) std::abort();
    return half;
}

// A key that was read once signs always, unless memory is gone.
std::string ed25519(EVP_PKEY* key, const std::string& message) {
    const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
    std::string out(kSignatureBytes, '\0');
    std::size_t size = out.size();
    if (context == nullptr ||
        EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) != 1 ||
        EVP_DigestSign(context.get(), bytes_of(out), &size, bytes_of(message), message.size()) !=
            1) {
        std::abort();
    }
    return out;
}

// HMAC-SHA256 with a key, ready for a message: what finds the algorithm and takes the key in costs
// more than a message.
Mac mac_of(std::string_view key) {
    const std::unique_ptr<EVP_MAC, FreeMac> algorithm(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
    if (algorithm == nullptr) return nullptr;
    std::string digest("SHA256");
    const std::array<OSSL_PARAM, 2> parameters{
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), digest.size()),
        OSSL_PARAM_construct_end()};
    Mac mac(EVP_MAC_CTX_new(algorithm.get()));
    if (mac == nullptr ||
        EVP_MAC_init(mac.get(), bytes_of(key), key.size(), parameters.data()) != 1) {
        return nullptr;
    }
    return mac;
}

std::string hmac(const EVP_MAC_CTX* keyed, const std::string& message) {
    const Mac mac(EVP_MAC_CTX_dup(keyed));
    std::string out(kHmacBytes, '\0');
    std::size_t size = 0;
    if (mac == nullptr || EVP_MAC_update(mac.get(), bytes_of(message), message.size()) != 1 ||
        EVP_MAC_final(mac.get(), bytes_of(out), &size, out.size()) != 1) {
        std::abort();
    }
    return out;
}

}  // namespace

struct Signer::Key {
    Mac symmetric;  // or
    Ed25519Key ed25519;
};

std::string_view name_of(SecretType type) {
    return type == SecretType::kV1 ? "v1" : "v1a";
}

std::optional<SecretType> secret_type(std::string_view name) {
    if (name == "v1") return SecretType::kV1;
    if (name == "v1a") return SecretType::kV1a;
    return std::nullopt;
}

Result<std::string> make_secret(SecretType type) {
    std::string bytes(kNewBytes, '\0');
    if (RAND_bytes(bytes_of(bytes), static_cast<int>(bytes.size())) != 1) {
        return ErrorInfo{ErrorCode::kInternal, Advice::kStop, {}, "no random bytes are to be had"};
    }
    std::string secret(type == SecretType::kV1 ? kSymmetric : kPrivate);
    if (type == SecretType::kV1a) {
        const Ed25519Key key = key_of(bytes);
        if (key == nullptr) {
            return not_made("Ed25519 key");
        }
        bytes += public_half(key.get());
    }
    append_base64(bytes, secret);
    OPENSSL_cleanse(bytes.data(), bytes.size());
    return secret;
}

Signer::Signer(std::unique_ptr<Key> key) : key_(std::move(key)) {}
Signer::Signer(Signer&& other) noexcept = default;
Signer& Signer::operator=(Signer&& other) noexcept = default;
Signer::~Signer() = default;

Result<Signer> Signer::make(std::string_view secret) {
    if (secret.starts_with(kPublic)) {
        return invalid("is a public key (`whpk_`), which signs nothing");
    }
    const bool symmetric = secret.starts_with(kSymmetric);
    if (!symmetric && !secret.starts_with(kPrivate)) {
        return invalid("begins with neither `whsec_` nor `whsk_`");
    }
    auto bytes = base64_decode(secret.substr(symmetric ? kSymmetric.size() : kPrivate.size()));
    if (!bytes) return invalid("is not in base64 behind its prefix");
    auto key = std::make_unique<Key>();
    if (symmetric) {
        if (bytes->size() < kLeastBytes || bytes->size() > kMostBytes) {
            return invalid("has " + std::to_string(bytes->size()) + " bytes");
        }
        key->symmetric = mac_of(*bytes);
        OPENSSL_cleanse(bytes->data(), bytes->size());
        if (key->symmetric == nullptr) return not_made("HMAC with SHA256");
        return Signer(std::move(key));
    }
    if (bytes->size() != kKeyBytes && bytes->size() != 2 * kKeyBytes) {
        return invalid("has " + std::to_string(bytes->size()) +
                       " bytes, where an Ed25519 key has 32, or 64 with its public half");
    }
    key->ed25519 = key_of(std::string_view(*bytes).substr(0, kKeyBytes));
    const bool fits =
        key->ed25519 != nullptr &&
        (bytes->size() == kKeyBytes || bytes->substr(kKeyBytes) == public_half(key->ed25519.get()));
    OPENSSL_cleanse(bytes->data(), bytes->size());
    if (!fits) return invalid("is no Ed25519 key: its two halves do not belong together");
    return Signer(std::move(key));
}

SecretType Signer::type() const {
    return key_->ed25519 == nullptr ? SecretType::kV1 : SecretType::kV1a;
}

std::string Signer::public_key() const {
    if (type() == SecretType::kV1) return {};
    std::string text(kPublic);
    append_base64(public_half(key_->ed25519.get()), text);
    return text;
}

std::string Signer::sign(std::string_view id, std::int64_t timestamp_s,
                         std::string_view payload) const {
    const std::string timestamp = std::to_string(timestamp_s);
    std::string message;
    message.reserve(id.size() + timestamp.size() + payload.size() + 2);
    message.append(id).append(".").append(timestamp).append(".").append(payload);
    std::string out(name_of(type()));
    out += ',';
    append_base64(type() == SecretType::kV1 ? hmac(key_->symmetric.get(), message)
                                            : ed25519(key_->ed25519.get(), message),
                  out);
    return out;
}

std::string signatures(std::span<const Signer* const> signers, std::string_view id,
                       std::int64_t timestamp_s, std::string_view payload) {
    std::string out;
    for (const Signer* signer : signers) {
        if (!out.empty()) out += ' ';
        out += signer->sign(id, timestamp_s, payload);
    }
    return out;
}

}  // namespace outbox::webhook
