#include "claim/s3_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "core/url.h"

namespace outbox::claim {
namespace {

constexpr net::Product kProduct{"S3", "", "http", "https", "s3://bucket/prefix?region=eu-central-1",
                                80,   443};
constexpr std::string_view kLocalRegion = "us-east-1";  // which other servers do not look at

constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "endpoint", .help = "another server than AWS: http://host:port"},
        BackendOption{.name = "region", .help = "that requests are signed for"},
        BackendOption{.name = "profile", .help = "in the file of credentials"},
        BackendOption{
            .name = "credentials_file", .type = OptionType::kPath, .help = "of AWS' own tools"},
    },
    net::kAccessOptions);

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

bool is_plain(std::string_view text, std::string_view also) {
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               also.find(c) != std::string_view::npos;
    });
}

// Names of buckets with dots are no part of a host that a certificate names.
Status place(const std::string& endpoint, S3Config& config) {
    std::string text = endpoint;
    const bool by_host = text.empty() && config.bucket.find('.') == std::string::npos;
    if (text.empty()) {
        text = "https://" + (by_host ? config.bucket + "." : std::string()) + "s3." +
               config.region + ".amazonaws.com";
    }
    const auto url = parse_url(text);
    if (!url.ok()) return url.error();
    if (Status added = net::add_url(kProduct, *url, config); !added.ok()) return added;
    if (!url->user.empty() || !url->query.empty() || (!url->path.empty() && url->path != "/")) {
        return invalid("the endpoint of S3 is http://host:port or https://host:port, and no more");
    }
    if (config.hosts.size() > 1) return invalid("the endpoint of S3 has several hosts");
    const net::Host& host = config.hosts.front();
    const bool bracket = host.name.find(':') != std::string::npos;
    config.base = url->scheme + "://" + (bracket ? "[" + host.name + "]" : host.name) +
                  (endpoint.empty() ? "" : ":" + std::to_string(host.port)) + "/" +
                  (by_host ? "" : config.bucket + "/");
    return net::check_access(kProduct, *url, config);
}

void choose_region(const std::string& endpoint, S3Config& config) {
    for (const char* const name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
        const char* value = std::getenv(name);
        if (config.region.empty() && value != nullptr) config.region = value;
    }
    if (config.region.empty() && !endpoint.empty()) config.region = kLocalRegion;
}

Status check(const Url& url, const S3Config& config) {
    constexpr std::size_t kLongestBucket = 63;
    if (config.bucket.empty() || config.bucket.size() > kLongestBucket ||
        !is_plain(config.bucket, ".-")) {
        return invalid("'" + config.bucket + "' is no bucket of S3; write " +
                       std::string(kProduct.example));
    }
    // So that no key needs to be encoded.
    if (!is_plain(config.prefix, "-_./") || config.prefix.find("..") != std::string::npos ||
        config.prefix.find("//") != std::string::npos) {
        return invalid("the prefix '" + config.prefix +
                       "' of the object store may have letters, digits, '-', '_', '.' and '/'");
    }
    if (config.region.empty() || !is_plain(config.region, "-")) {
        return invalid("no region: set AWS_REGION, or " + std::string(kProduct.example));
    }
    const bool has_key = !url.user.empty();
    if (has_key != (!config.password.empty() || !config.password_file.empty())) {
        return invalid(
            "of the access key the id stands in the URL as the user, and the secret as "
            "the password or in password_file; give both or neither");
    }
    if (!url.password.empty() && !config.password_file.empty()) {
        return invalid("the URL of S3 has a password and a password file; leave one of them out");
    }
    if (has_key && (!config.profile.empty() || !config.credentials_file.empty())) {
        return invalid("there are an access key and a profile; leave one of them out");
    }
    return {};
}

}  // namespace

Result<S3Config> make_s3_config(std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    S3Config config;
    config.user = parsed->user;
    config.password = parsed->password;
    config.bucket = parsed->authority;
    const std::string_view path(parsed->path);
    config.prefix = path.empty() ? "" : path.substr(1);
    while (config.prefix.ends_with('/')) config.prefix.pop_back();
    const auto values =
        read_backend_options({"the URL of S3", kProduct.prefix, kOptions}, parsed->query, {});
    if (!values.ok()) return values.error();
    net::take_access(*values, config);
    config.region = values->text("region");
    config.profile = values->text("profile");
    config.credentials_file = values->text("credentials_file");
    const std::string endpoint = values->text("endpoint");
    choose_region(endpoint, config);
    if (Status valid = check(*parsed, config); !valid.ok()) return valid.error();
    if (Status placed = place(endpoint, config); !placed.ok()) return placed.error();
    if (!config.prefix.empty()) config.prefix += '/';
    return config;
}

}  // namespace outbox::claim
