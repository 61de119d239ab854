#include "aws/config.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "core/transport.h"
#include "core/url.h"
#include "net/aws_keys.h"

namespace outbox::aws {
namespace {

constexpr std::string_view kLocalRegion = "us-east-1";  // which local servers do not look at
constexpr std::size_t kAccountDigits = 12;

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status take_options(const BackendValues& values, Config& config) {
    net::take_access(values, config);
    config.region = values.text("region");
    config.account = values.text("account");
    config.producer = values.text("producer");
    config.profile = values.text("profile");
    config.credentials_file = values.text("credentials_file");
    config.connections = values.size("connections");
    const bool number = std::all_of(config.account.begin(), config.account.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!values.given("account") || (number && config.account.size() == kAccountDigits)) return {};
    return invalid(std::string(config.service->product.prefix) + "account is '" + config.account +
                   "'; an account of AWS has 12 digits");
}

// "eu-central-1" of "sqs.eu-central-1.amazonaws.com"; empty: the host does not tell.
std::string region_of_host(const Service& service, std::string_view host) {
    const std::string begin = std::string(service.name) + ".";
    const std::size_t amazon = host.find(".amazonaws.com");
    if (!host.starts_with(begin) || amazon == std::string_view::npos || amazon < begin.size()) {
        return {};
    }
    return std::string(host.substr(begin.size(), amazon - begin.size()));
}

void choose_region(Config& config) {
    if (!config.region.empty()) return;
    config.region = region_of_host(*config.service, config.hosts.front().name);
    for (const char* const name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
        const char* value = std::getenv(name);
        if (config.region.empty() && value != nullptr) config.region = value;
    }
    if (config.region.empty() && !config.tls) config.region = kLocalRegion;
}

Status check(const Url& url, const Config& config) {
    const net::Product& product = config.service->product;
    const std::string name(product.name);
    if (!url.path.empty() && url.path != "/") {
        return invalid("the " + name + " URL has the path '" + url.path + "'; " +
                       std::string(config.service->topics) +
                       " are named by topics: " + std::string(product.example));
    }
    if (config.hosts.size() > 1) {
        return invalid("the " + name + " URL has several hosts; it is one service");
    }
    if (config.user.empty() != (config.password.empty() && config.password_file.empty())) {
        return invalid(
            "of the access key the id stands in the URL as the user, and the secret as the "
            "password "
            "or in password_file; give both or neither");
    }
    if (!config.user.empty() && (!config.profile.empty() || !config.credentials_file.empty())) {
        return invalid("there are an access key and a profile; leave one of them out");
    }
    if (config.region.empty()) {
        return invalid("no region: set " + std::string(product.prefix) +
                       "region or AWS_REGION, as in " + std::string(product.example) +
                       "?region=eu-central-1");
    }
    const bool plain = std::all_of(config.region.begin(), config.region.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-';
    });
    if (!plain) {
        return invalid(std::string(product.prefix) + "region is '" + config.region +
                       "'; a region is eu-central-1");
    }
    return net::check_access(product, url, config);
}

}  // namespace

Result<Config> make_config(const Service& service, std::string_view url,
                           const std::map<std::string, std::string>& options) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    Config config;
    config.service = &service;
    config.max_message_bytes = service.max_message_bytes;
    Status read = net::add_url(service.product, *parsed, config);
    if (!read.ok()) return read.error();
    const auto values =
        read_backend_options(net::scope_of(service.product, kOptions), parsed->query, options);
    if (!values.ok()) return values.error();
    read = take_options(*values, config);
    if (!read.ok()) return read.error();
    choose_region(config);
    if (Status valid = check(*parsed, config); !valid.ok()) return valid.error();
    return config;
}

std::string name_of_server(const Config& config) {
    return net::name_of(config.service->product.name, config.hosts.front());
}

std::string transport_weakness(const Config& config) {
    std::string weakness = net::transport_weakness(config.service->product, config);
    return weakness.empty() ? net::weakness_of_key(config, config, config.region) : weakness;
}

}  // namespace outbox::aws
