#include "dashboard/gate.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "dashboard/page.h"
#include "dashboard/site.h"

namespace outbox::dashboard {
namespace {

using admin::HttpRequest;
using nlohmann::ordered_json;
using testing::HasSubstr;

constexpr const char* kToken = "0123456789abcdef";

GateConfig gate(bool loopback = true) {
    return {"127.0.0.1", loopback, [] { return Result<std::string>(kToken); }};
}
HttpRequest read() {
    return {.method = "GET", .path = "/api/overview", .host = "localhost:9465"};
}
HttpRequest change() {
    return {.method = "POST",
            .path = "/api/letters/retry",
            .host = "localhost:9465",
            .origin = "http://localhost:9465",
            .authorization = std::string("Bearer ") + kToken,
            .content_type = "application/json"};
}
std::string refusal(const GateConfig& config, const HttpRequest& request) {
    const auto refused = refuse(config, request);
    return refused ? std::to_string(refused->status) + " " + refused->code : "";
}

TEST(Gate, AnyoneOnThisMachineReadsAndOnlyTheTokenChanges) {
    EXPECT_EQ(refusal(gate(), read()), "");
    EXPECT_EQ(refusal(gate(), change()), "");
    HttpRequest request = change();
    request.authorization.clear();
    EXPECT_EQ(refusal(gate(), request), "401 token_missing");
    for (const char* wrong : {"Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer ",
                              "Bearer 0123456789abcdef0"}) {
        request.authorization = wrong;
        EXPECT_EQ(refusal(gate(), request), "401 token_wrong") << wrong;
    }
    request.authorization = std::string("bEARER ") + kToken;
    EXPECT_EQ(refusal(gate(), request), "");
    request.authorization = std::string("Basic ") + kToken;
    EXPECT_EQ(refusal(gate(), request), "401 token_missing");
}

TEST(Gate, WithoutATokenFileNothingIsChanged) {
    const GateConfig config{"127.0.0.1", true, nullptr};
    EXPECT_EQ(refusal(config, read()), "");
    EXPECT_EQ(refusal(config, change()), "403 read_only");
}

TEST(Gate, ATokenFileThatCannotBeReadIsToldAndChangesNothing) {
    const GateConfig config{"127.0.0.1", true, [] {
                                return Result<std::string>(
                                    ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, {}, "x"});
                            }};
    EXPECT_EQ(refusal(config, change()), "503 token_file");
}

TEST(Gate, RefusesForeignHosts) {
    for (const char* foreign :
         {"evil.example", "evil.example:9465", "", "localhost.evil.example"}) {
        for (HttpRequest request : {read(), change()}) {
            request.host = foreign;
            request.origin.clear();
            EXPECT_EQ(refusal(gate(), request), "403 host_foreign") << foreign;
            EXPECT_EQ(refusal(gate(false), request), "403 host_foreign") << foreign;
        }
    }
    HttpRequest request = change();
    for (const char* own : {"127.0.0.1:9465", "[::1]:9465", "LOCALHOST"}) {
        request.host = own;
        request.origin = std::string("https://") + own;
        EXPECT_EQ(refusal(gate(), request), "") << own;
    }
    GateConfig named = gate(false);
    named.host = "ops.example";
    request.host = "Ops.Example";
    request.origin = "https://ops.example";
    EXPECT_EQ(refusal(named, request), "");
}

TEST(Gate, RefusesForeignOrigins) {
    for (const char* foreign : {"https://evil.example", "null", "http://localhost:9466",
                                "http://localhost", "localhost:9465"}) {
        for (HttpRequest request : {read(), change()}) {
            request.origin = foreign;
            EXPECT_EQ(refusal(gate(), request), "403 origin_foreign") << foreign;
        }
    }
    HttpRequest request = change();
    request.origin.clear();  // no browser: the token is what counts
    EXPECT_EQ(refusal(gate(), request), "");
}

TEST(Gate, TakesChangesAsJsonAlone) {
    HttpRequest request = change();
    for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded"}) {
        request.content_type = type;
        EXPECT_EQ(refusal(gate(), request), "415 content_type") << type;
    }
    for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH"}) {
        request = change();
        request.method = method;
        EXPECT_EQ(refusal(gate(), request), "405 method") << method;
    }
}

TEST(Gate, WhereOthersReachItReadingNeedsTheTokenThatThereIs) {
    EXPECT_EQ(refusal(gate(false), read()), "401 token_missing");
    HttpRequest request = read();
    request.authorization = std::string("Bearer ") + kToken;
    EXPECT_EQ(refusal(gate(false), request), "");
    EXPECT_EQ(refusal({"0.0.0.0", false, nullptr}, read()), "");  // warned of at the start
}

TEST(Gate, RefusesTokenFilesThatAreNoSecret) {
    const std::string file = testing::TempDir() + "/gate-token-" + std::to_string(getpid());
    const auto write = [&](const std::string& text, mode_t mode) {
        std::ofstream(file) << text;
        chmod(file.c_str(), mode);
        return read_token(file);
    };
    EXPECT_EQ(*write("0123456789abcdef\n", 0600), kToken);
    EXPECT_THAT(write("0123456789abcdef\n", 0604).error().message, HasSubstr("chmod"));
    EXPECT_THAT(write("short\n", 0600).error().message, HasSubstr("openssl rand"));
    EXPECT_THAT(write("\n", 0600).error().message, HasSubstr("empty"));
    unlink(file.c_str());
    EXPECT_THAT(read_token(file).error().message, HasSubstr("No such file"));
    EXPECT_EQ(read_token(file).error().code, ErrorCode::kConfigInvalid);
}

// --- The site

admin::HttpResponse answer_of(const admin::AdminServer::Site& site, const HttpRequest& request) {
    auto known = site.at_once(request, std::chrono::seconds(0));
    return known ? *std::move(known) : site.ask(request);
}

admin::HttpResponse ask(const HttpRequest& request, const ordered_json& answer) {
    return answer_of(
        make_site(gate(), [&](const Question&) { return Result<ordered_json>(answer); }), request);
}

TEST(Site, ServesThePageWithAPolicyThatLetsNothingElseIn) {
    for (const PageFile& file : page_files()) {
        HttpRequest request = read();
        request.path = std::string(file.path);
        const auto response = ask(request, {});
        EXPECT_EQ(response.status, 200U);
        EXPECT_EQ(response.body, file.text);
        std::string policy;
        for (const auto& [name, value] : response.headers) {
            if (name == "Content-Security-Policy") policy = value;
        }
        EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'self'")) << file.path;
        EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe")));
    }
    HttpRequest request = read();
    request.path = "/";
    EXPECT_THAT(ask(request, {}).body, HasSubstr("<title>Outbox</title>"));
    request.path = "/../gate.h";
    EXPECT_EQ(ask(request, {}).status, 404U);
}

// The browser test sees that it is so; this one, that nobody begins with it.
TEST(Site, NoFileOfThePageMakesMarkupOrCodeOfText) {
    for (const PageFile& file : page_files()) {
        for (const char* means :
             {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
              "new Function", "onclick=", "style=\"", "http://", "//cdn"}) {
            if (file.path == "/icon.svg" || file.text.find("w3.org") != std::string_view::npos) {
                if (std::string_view(means) == "http://") continue;  // a namespace
            }
            EXPECT_EQ(file.text.find(means), std::string_view::npos) << file.path << ": " << means;
        }
    }
}

TEST(Site, CutsLongTextsAndSaysSo) {
    const ordered_json long_ones{{"error", std::string(10'000, 'x')},
                                 {"payload", std::string(100'000, 'y')},
                                 {"deep", {{"key", "\u00e4" + std::string(kMaxTextBytes, 'z')}}}};
    const auto body = ordered_json::parse(ask(read(), long_ones).body);
    EXPECT_THAT(body["error"].get<std::string>(), HasSubstr("xxx… (cut: 10000 bytes in all)"));
    EXPECT_LT(body["error"].get<std::string>().size(), kMaxTextBytes + 50);
    EXPECT_THAT(body["payload"].get<std::string>(), HasSubstr("cut: 100000 bytes"));
    EXPECT_GE(body["payload"].get<std::string>().size(), kMaxPayloadBytes);
    EXPECT_THAT(body["deep"]["key"].get<std::string>(), HasSubstr("cut: 4098 bytes"));
}

TEST(Site, BytesThatAreNoUtf8AreReplaced) {
    const auto response = ask(read(), {{"payload", "a\xff\xc3"}});
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(ordered_json::parse(response.body)["payload"], "a\uFFFD\uFFFD");
}

TEST(Site, ErrorsBecomeAStatusAndJsonWithoutSecrets) {
    const auto status_of = [](ErrorCode code) {
        const auto site = make_site(gate(), [&](const Question&) {
            return Result<ordered_json>(
                ErrorInfo{code, Advice::kStop, {}, "see postgresql://app:hidden@host/db"});
        });
        const auto response = answer_of(site, read());
        EXPECT_THAT(response.body, testing::Not(HasSubstr("hidden")));
        EXPECT_EQ(ordered_json::parse(response.body)["error"], error_code_name(code));
        return response.status;
    };
    EXPECT_EQ(status_of(ErrorCode::kConfigInvalid), 400U);
    EXPECT_EQ(status_of(ErrorCode::kConflict), 409U);
    EXPECT_EQ(status_of(ErrorCode::kNoRights), 403U);
    EXPECT_EQ(status_of(ErrorCode::kConnectFailed), 503U);
    EXPECT_EQ(ask(read(), nullptr).status, 404U);
}

TEST(Site, ServesItsFilesWhileTheDeskWaitsAndSaysThatItDoes) {
    const auto site = make_site(gate(), nullptr);
    HttpRequest request = read();
    const auto busy = site.at_once(request, kMostBusy);
    ASSERT_TRUE(busy.has_value());
    EXPECT_EQ(busy->status, 503U);
    EXPECT_EQ(ordered_json::parse(busy->body)["error"], "busy");
    EXPECT_FALSE(site.at_once(request, kMostBusy - std::chrono::seconds(1)).has_value());
    request.host = "evil.example";
    EXPECT_EQ(site.at_once(request, kMostBusy)->status, 403U);
    for (const char* path : {"/", "/api/access"}) {
        request = read();
        request.path = path;
        EXPECT_EQ(site.at_once(request, kMostBusy)->status, 200U) << path;
        request.host = "evil.example";
        EXPECT_EQ(site.at_once(request, kMostBusy)->status, 403U) << path;
    }
}

TEST(Site, QueriesAreDecoded) {
    Question asked;
    HttpRequest request = read();
    request.query = "key=a+b%2Fc%26&empty=&&route=r%3D1&nothing";
    const auto site = make_site(gate(), [&](const Question& question) {
        asked = question;
        return Result<ordered_json>(ordered_json::object());
    });
    answer_of(site, request);
    const std::map<std::string, std::string> expected{
        {"key", "a b/c&"}, {"empty", ""}, {"route", "r=1"}};
    EXPECT_EQ(asked.values, expected);
}

}  // namespace
}  // namespace outbox::dashboard
