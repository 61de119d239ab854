#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::claim {

// The headers of a record whose payload is kept elsewhere; the same in every format.
inline constexpr std::string_view kReferenceHeader = "claim-check";
inline constexpr std::string_view kSizeHeader = "claim-check-size";
inline constexpr std::string_view kHashHeader = "claim-check-sha256";

/// What a record says of its payload.
struct Claim {
    std::string reference;  ///< Where it is, for people: "s3://bucket/prefix/NAME".
    std::uint64_t size = 0;
    std::string sha256;  ///< 64 hexadecimal digits.

    /// What the object is called in its store: the end of the reference.
    [[nodiscard]] std::string_view name() const;
    /// The URL of that store, as whoever wrote it has it: the reference without the name.
    [[nodiscard]] std::string_view store() const;
};

/// The name of an object: a SHA-256 over the event's source, its id and the payload's SHA-256. With
/// the content in it, no object is ever written with another one: what an operator changed in a
/// dead letter is another object, and messages that were sent before keep theirs.
[[nodiscard]] std::string object_name(std::string_view source, std::string_view id,
                                      std::string_view sha256);
/// 64 hexadecimal digits, and so nothing that leads out of a folder or a prefix.
[[nodiscard]] bool is_object_name(std::string_view text);

/// What stands in the record instead of the payload: a JSON object with the same facts.
[[nodiscard]] std::string note_of(const Claim& claim);

/// What a message's headers, a JSON object of strings, say; none: it has its payload. Costs next to
/// nothing where there is none.
/// Errors: kInvalidEvent/dead_letter where they are no such facts.
Result<std::optional<Claim>> read_claim(std::string_view headers_json);

/// That these are the bytes. Errors: kObjectAltered/dead_letter.
Status verify(const Claim& claim, std::string_view bytes);

}  // namespace outbox::claim
