#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

namespace outbox {

enum class OptionType : std::uint8_t {
    kFlag,
    kInteger,
    kText,
    kUrl,
    kDestination,  ///< A URL, or NAME=URL.
    kChoice,
    kDuration,  ///< A number and one of s, m, h, d.
    kPath,
};

/// One option of a backend, from which come its parser, --help, `outbox sinks`, the reference page
/// and the table on the backend's own page.
struct BackendOption {
    std::string_view name = {};           ///< Without the backend's: "max_len".
    OptionType type = OptionType::kText;  ///< kFlag, kInteger, kText or kPath.
    std::string_view fallback = {};       ///< The default as text; "": see `help`.
    std::string_view unit = {};           ///< Of kInteger: "ms", "bytes", ...
    std::int64_t min = 0;                 ///< Of kInteger.
    std::int64_t max = 0;
    bool required = false;    ///< There has to be a value, and no empty one.
    bool repeatable = false;  ///< The values of several are all meant; else the last one is.
    bool secret = false;      ///< Hidden wherever it would be printed.
    std::string_view help = {};
};

template <std::size_t... kSizes>
[[nodiscard]] constexpr auto all_options(const std::array<BackendOption, kSizes>&... parts) {
    std::array<BackendOption, (kSizes + ... + 0)> all{};
    std::size_t at = 0;
    const auto take = [&](const auto& part) {
        for (const BackendOption& option : part) all[at++] = option;
    };
    (take(parts), ...);
    return all;
}

/// "0 to 1000000 ids", "true or false", "text", "file".
[[nodiscard]] std::string values_of(const BackendOption& option);

/// Whose options these are.
struct OptionScope {
    std::string_view who;     ///< As messages name it, before "has": "Redis".
    std::string_view prefix;  ///< That names may have: "redis."; may be empty.
    std::span<const BackendOption> options;
};

/// Values of declared options, of the types that they have. Asking for one that is not declared, or
/// as another type, is a defect and aborts.
class BackendValues {
  public:
    [[nodiscard]] bool given(std::string_view name) const;
    [[nodiscard]] bool flag(std::string_view name) const;
    [[nodiscard]] std::int64_t integer(std::string_view name) const;
    /// What is declared as at least zero.
    [[nodiscard]] std::size_t size(std::string_view name) const;
    [[nodiscard]] std::string text(std::string_view name) const;
    /// Without the default.
    [[nodiscard]] std::vector<std::string> list(std::string_view name) const;

  private:
    friend class BackendOptionReader;
    explicit BackendValues(std::span<const BackendOption> options) : options_(options) {}
    [[nodiscard]] const BackendOption& declared(std::string_view name, OptionType type) const;
    [[nodiscard]] std::string value(const BackendOption& option) const;

    std::span<const BackendOption> options_;
    std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

/// The options of a URL's query, and over them those of a table. Errors: kConfigInvalid/stop for
/// one that is not declared (with the closest one that is), a value of another type or out of
/// range, one that is given twice in one place, and a required one that is missing; the first of
/// them, without secrets.
[[nodiscard]] Result<BackendValues> read_backend_options(
    const OptionScope& scope, const std::vector<std::pair<std::string, std::string>>& query,
    const std::map<std::string, std::string>& table);

}  // namespace outbox
