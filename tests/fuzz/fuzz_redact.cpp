// A secret of any bytes in texts of many forms: nothing of it may be left.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/redact.h"
#include "core/url.h"

namespace {

struct Form {
    std::string_view before;
    std::string_view behind;
    bool bare = false;  // the secret has neither blanks nor quotes: hidden by its form alone
};

constexpr Form kForms[] = {
    {"postgresql://app:", "@db:5432/shop?sslmode=require"},
    {"mailbox+postgresql://app:", "@db/shop?mailbox=a"},
    {"postgres//app:", "@db/shop"},
    {"postgres:/app:", "@db/shop"},
    {"app:", "@db/shop"},
    {"host=db password=", " user=app", true},
    {"password = ", ""},
    {"PASSWORD=", ""},
    {"kafka://db:9092?kafka.sasl.password=", ""},
    {"kafka://db:9092?a=b&ssl.key.pem=", ""},
    {"kafka://db:9092?sasl.oauthbearer.config=", ""},
    {"postgresql://db/shop?sslpassword=", "", true},
};

// What a parser may cut a password into that was not encoded.
std::vector<std::string> parts_of(const std::string& secret) {
    std::vector<std::string> parts(1);
    for (const char c : secret) {
        if (std::string_view("@/?#:&").find(c) == std::string_view::npos) {
            parts.back() += c;
        } else {
            parts.emplace_back();
        }
    }
    return parts;
}

std::string lines(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
    return out;
}

void expect_hidden(std::string_view text, std::string_view secret, std::string_view frame) {
    if (frame.find(secret) != std::string_view::npos) return;  // is there without it, too
    if (text.find(secret) != std::string_view::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::string_view kParts[] = {"key.pem", "oauthbearer.config"};
    outbox::add_secret_options(kParts);
    if (size < 5 || size > 200) return 0;
    const Form& form = kForms[data[0] % std::size(kForms)];
    const std::string secret(reinterpret_cast<const char*>(data) + 1, size - 1);
    // What holds a mask cannot be told from what is masked.
    if (secret.find_first_not_of('*') == std::string::npos) return 0;
    if (secret.find("***") != std::string::npos) return 0;
    // "app://" is a scheme.
    if (form.before == "app:" && secret.starts_with("//")) return 0;
    const std::string text = std::string(form.before) + secret + std::string(form.behind);
    const std::string frame = std::string(form.before) + "***" + std::string(form.behind);
    const bool plain = secret.find_first_of(" \t\n\v\f\r'\"\\=:@/") == std::string::npos;
    if (plain) {
        expect_hidden(outbox::redact("cannot use '" + text + "' here"), secret,
                      "cannot use '" + frame + "' here");
        if (!outbox::holds_secret(text)) std::abort();
    }
    // Forms whose value ends at a blank say nothing of what stands behind one.
    const bool ends = form.bare || form.behind.empty();
    if (ends && !plain) return 0;
    const auto first = secret.find_first_not_of(" \t\n\v\f\r");
    if (first == std::string::npos || secret.size() - first < 4) return 0;
    outbox::forget_secrets();
    // A library remembers nothing: what the parser says or hands on is clean by itself.
    const auto url = outbox::parse_url(text);
    // What the parser says whatever the secret is.
    const auto refused =
        outbox::parse_url(std::string(form.before) + std::string("@/?") + std::string(form.behind));
    const std::string fixed = refused.ok() ? std::string() : refused.error().message;
    if (form.before.ends_with("://app:")) {
        const std::string shown = url.ok() ? url->authority : url.error().message;
        for (const std::string& part : parts_of(secret)) {
            if (part.size() >= 4) expect_hidden(shown, part, fixed + frame);
        }
    }
    outbox::remember_secrets_of(text);
    const std::string said = url.ok() ? url->authority + url->path : url.error().message;
    for (const std::string& message : {text, "broke: " + secret + "!", said}) {
        expect_hidden(outbox::redact(message), secret, frame + fixed + " broke: !");
        expect_hidden(outbox::redacted_line(message), lines(secret), frame + fixed + " broke: !");
    }
    return 0;
}
