#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace outbox::schema {

/// Why there is no schema, by a name that `registry_errors.h` knows.
struct RegistryFault {
    std::string name;
    std::string text = {};  ///< Printable, and not redacted yet.
    int status = 0;
};

/// A version of a subject, as it is registered.
struct Registered {
    std::uint32_t id = 0;
    std::string type = "AVRO";  ///< As the API has it where nothing is said.
    std::string text = {};
    struct Reference {
        std::string name;  ///< As the schema has it.
        std::string subject;
        std::string version;
    };
    std::vector<Reference> references = {};
};

/// What a registry answers to GET /subjects/{subject}/versions/{version}.
[[nodiscard]] std::variant<Registered, RegistryFault> read_registered(int status,
                                                                      std::string_view location,
                                                                      std::string_view body);
/// What is wrong with an answer to GET /schemas/types, which tells a registry from whatever else
/// may be there; an empty name: nothing.
[[nodiscard]] RegistryFault read_types(int status, std::string_view location,
                                       std::string_view body);

}  // namespace outbox::schema
