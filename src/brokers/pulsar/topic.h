#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::pulsar {

/// A value as a part of a topic's name: what would split it or mean something in it (white space,
/// control characters, / and %, and the - before the number of a partition) becomes %XX.
/// Reversible, and the same for the same value.
[[nodiscard]] std::string encode_part(std::string_view value);

/// That a name is "topic", "tenant/namespace/topic" or "persistent://tenant/namespace/topic".
/// Errors: kTopicInvalid/dead_letter.
Status check_topic(std::string_view topic);

/// Whether tenants and namespaces may be called so.
[[nodiscard]] bool is_name(std::string_view text);

/// "persistent://tenant/namespace/topic"; a name without slashes is of the namespace `home`
/// ("public/default").
[[nodiscard]] std::string full_name(std::string_view topic, std::string_view home);

/// "persistent://tenant/namespace/topic-partition-3".
[[nodiscard]] std::string name_of_partition(const std::string& topic, std::size_t partition);

/// What Java's String.hashCode says of the text; bytes that are not UTF-8 count as themselves.
[[nodiscard]] std::uint32_t java_hash(std::string_view text);

/// The partition that Pulsar's Java client gives a key by itself (its hashingScheme
/// JavaStringHash).
[[nodiscard]] std::size_t partition_of(std::string_view key, std::size_t partitions);

}  // namespace outbox::pulsar
