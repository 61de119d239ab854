#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::webhook {

/// How requests are signed, as Standard Webhooks 1.0 defines it.
enum class SecretType : std::uint8_t {
    kV1,  ///< "v1": HMAC-SHA256; both sides have the secret.
    kV1a  ///< "v1a": Ed25519; the receiver has the public key alone.
};

/// "v1", "v1a".
[[nodiscard]] std::string_view name_of(SecretType type);
[[nodiscard]] std::optional<SecretType> secret_type(std::string_view name);

/// A new secret, as it is shown and stored: "whsec_" and 32 random bytes in base64, or "whsk_" and
/// an Ed25519 key with its public half. Errors: kInternal where there is no randomness.
Result<std::string> make_secret(SecretType type);

/// Signs with one secret. Cheap to keep, dear to make; any thread may sign.
class Signer {
  public:
    /// From "whsec_" and 24 to 64 bytes, or "whsk_" and a key of 32 bytes, or of 64 with the
    /// public half behind it. Errors: kConfigInvalid, which says what is wrong with the secret and
    /// nothing of what is in it.
    static Result<Signer> make(std::string_view secret);
    Signer(Signer&& other) noexcept;
    Signer& operator=(Signer&& other) noexcept;
    ~Signer();

    [[nodiscard]] SecretType type() const;
    /// "whpk_...", what receivers check with; "" for v1.
    [[nodiscard]] std::string public_key() const;
    /// "v1,BASE64" of "id.timestamp.payload". `id` has no '.' (`request.h`), `timestamp_s` is the
    /// time of this attempt.
    [[nodiscard]] std::string sign(std::string_view id, std::int64_t timestamp_s,
                                   std::string_view payload) const;

  private:
    struct Key;
    explicit Signer(std::unique_ptr<Key> key);
    std::unique_ptr<Key> key_;
};

/// What `webhook-signature` holds: one of each signer, with a blank between them. Receivers take
/// the request when one of them fits, so that a secret can be changed while requests flow.
[[nodiscard]] std::string signatures(std::span<const Signer* const> signers, std::string_view id,
                                     std::int64_t timestamp_s, std::string_view payload);

}  // namespace outbox::webhook
