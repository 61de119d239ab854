#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace outbox::codec::debezium {

/// Kafka Connect's RegexRouter: where the whole value matches `regex`, the first match in it is
/// replaced, by java.util.regex' rules. The engine is PCRE2; docs/debezium.md names the differences
/// that are left. Not thread-safe (keeps what it made last).
class TopicRouter {
  public:
    /// Errors: kConfigInvalid for a regular expression that does not compile, or means something
    /// else here than in Java, and for a replacement that Java refuses.
    static Result<TopicRouter> make(const std::string& regex, const std::string& replacement);

    TopicRouter(TopicRouter&&) noexcept;
    TopicRouter& operator=(TopicRouter&&) noexcept;
    ~TopicRouter();

    /// The topic of events with this value; lives as long as `arena` or this object. None: the
    /// expression takes too long for the value.
    std::optional<std::string_view> topic(std::string_view value, spi::EventBatch& arena);

  private:
    struct Part {
        std::string text;
        int group = -1;  ///< -1: the text.
    };
    struct Free {
        void operator()(pcre2_real_code_8* code) const;
        void operator()(pcre2_real_match_data_8* data) const;
        void operator()(pcre2_real_match_context_8* context) const;
    };

    TopicRouter();
    Status compile(const std::string& regex);
    Status parse_replacement(const std::string& replacement);
    [[nodiscard]] std::optional<Part> group_part(std::string_view& rest) const;
    [[nodiscard]] std::optional<std::string> route(std::string_view value);

    std::unique_ptr<pcre2_real_code_8, Free> code_;
    std::unique_ptr<pcre2_real_match_data_8, Free> match_;
    std::unique_ptr<pcre2_real_match_context_8, Free> limits_;
    int groups_ = 0;
    std::vector<Part> parts_;
    std::unordered_map<std::string, std::string> made_;
    std::size_t made_bytes_ = 0;
    std::string scratch_;
};

}  // namespace outbox::codec::debezium
