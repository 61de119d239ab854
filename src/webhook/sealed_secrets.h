#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::webhook {

/// A secret of an endpoint, as `signature.h` takes it.
struct Secret {
    std::string text;
    std::int64_t until_s =
        0;  ///< Since the Unix epoch; a former one signs until then. 0: for ever.
};

/// The keys that endpoints' secrets are stored under. Nothing of them is in the database: a dump of
/// it forges no request.
class KeyRing {
  public:
    /// A file of lines with 32 bytes in base64 each (`openssl rand -base64 32`). The first one
    /// seals; the others open what was sealed with them before. Errors: kAuthFailed where the file
    /// cannot be read or others may read it, kConfigInvalid where it has no key. The redactor
    /// remembers the keys.
    static Result<KeyRing> read(const std::string& path);
    /// The same, of the file's text.
    static Result<KeyRing> parse(std::string_view text);
    KeyRing(KeyRing&&) noexcept = default;
    KeyRing& operator=(KeyRing&&) noexcept = default;
    KeyRing(const KeyRing&) = delete;
    KeyRing& operator=(const KeyRing&) = delete;
    ~KeyRing();

    /// "1f2e3d4c" of the key that seals: a hash, which tells keys apart and nothing of them.
    [[nodiscard]] const std::string& key_id() const { return keys_.front().id; }

    /// `Endpoint::secrets`: the secrets, the current one first, under AES-256-GCM, bound to the
    /// endpoint's id; it can be opened for no other one. Errors: kInternal without randomness.
    [[nodiscard]] Result<std::string> seal(std::string_view endpoint_id,
                                           const std::vector<Secret>& secrets) const;
    /// Whether it has the key that this was sealed with, as far as that can be read.
    [[nodiscard]] bool knows(std::string_view sealed) const;
    /// What was sealed. Errors, all kConfigInvalid/stop and without any part of it: it was sealed
    /// with a key that the ring does not have, or was altered, or belongs to another endpoint.
    [[nodiscard]] Result<std::vector<Secret>> open(std::string_view endpoint_id,
                                                   std::string_view sealed) const;

  private:
    struct Key {
        std::string id;
        std::string bytes;
    };
    KeyRing() = default;
    std::vector<Key> keys_;
};

/// Those that sign at this time.
[[nodiscard]] std::vector<Secret> in_force(const std::vector<Secret>& secrets, std::int64_t now_s);

}  // namespace outbox::webhook
