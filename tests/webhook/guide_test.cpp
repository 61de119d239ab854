// docs/brokers/webhook.md as a reader runs it: its commands, its receiver, its check of v1a.
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/outbox_binary.h"
#include "tests/webhook/receiver.h"
#include "webhook/signature.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> examples(const std::string& language) {
    std::istringstream lines(read_file(GUIDE_PAGE));
    std::vector<std::string> found;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line == "```" + language) {
            found.emplace_back();
            inside = true;
        } else if (line == "```") {
            inside = false;
        } else if (inside) {
            found.back() += line + "\n";
        }
    }
    return found;
}

std::string with_port(std::string text, int port) {
    const std::string shown = "8080";
    for (std::size_t at = 0; (at = text.find(shown, at)) != std::string::npos;) {
        text.replace(at, shown.size(), std::to_string(port));
    }
    return text;
}

std::vector<std::string> python(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {std::string(OUTBOX_SOURCE_DIR) + "/script/clients", "python", "-B"});
    return arguments;
}

class WebhookGuide : public testing::Test {
  protected:
    ProcessOptions shell(const std::string& script) const {
        const std::filesystem::path program = OUTBOX_BINARY;
        return {
            .command = {"bash", "-e", "-c", script},
            .environment = {{"PATH", program.parent_path().string() + ":" + std::getenv("PATH")}},
            .working_folder = folder_.path()};
    }
    TemporaryFolder folder_{"guide"};
};

TEST_F(WebhookGuide, ItsCommandsBringAnEventToItsReceiver) {
    const auto steps = examples("sh");
    const auto programs = examples("python");
    ASSERT_EQ(steps.size(), 2U);
    ASSERT_EQ(programs.size(), 2U);
    const int port = free_port();
    const Finished added = run(shell(with_port(steps[0], port)));
    ASSERT_EQ(added.status.code, 0) << added.err;
    const auto secret = added.out.find("whsec_");
    ASSERT_NE(secret, std::string::npos) << added.out;
    std::ofstream(folder_ / "receiver.py") << programs[0];
    Process receiver(
        {.command = python({(folder_ / "receiver.py").string(), std::to_string(port)}),
         .environment = {
             {"WEBHOOK_SECRET", added.out.substr(secret, added.out.find('\n', secret) - secret)}}});
    Process relay(shell("exec " + steps[1].substr(0, steps[1].size() - 1) + " --admin off"));
    ASSERT_TRUE(eventually(60s, "the receiver has the event",
                           [&] {
                               return receiver.stdout_text().find(
                                          "order.created {'order_id': 'o-1'}") != std::string::npos;
                           }))
        << receiver.stderr_text() << relay.stderr_text();
    ProcessOptions look = shell("outbox webhook list --db sqlite://$PWD/shop.db --json");
    ASSERT_TRUE(eventually(60s, "it is done", [&] {
        const auto list = nlohmann::json::parse(run(look).out);
        return list[0]["waiting"] == 0 && list[0]["delivered_total"] == 1;
    }));
    EXPECT_EQ(relay.stop(), (ExitStatus{0, 0}));
}

TEST_F(WebhookGuide, ItsCheckOfAnEd25519SignatureTellsGenuineFromForged) {
    const auto secret = webhook::make_secret(webhook::SecretType::kV1a).value_or_throw();
    const auto signer = webhook::Signer::make(secret);
    ASSERT_TRUE(signer.ok());
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const std::string program =
        examples("python").at(1) +
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    case = json.loads(line)\n"
        "    print(is_genuine(case['key'], case['headers'], case['body'].encode()))\n";
    std::string cases;
    const auto add = [&](const std::string& key, std::int64_t time, const std::string& signature) {
        cases += nlohmann::json{{"key", key},
                                {"headers",
                                 {{"webhook-id", "a"},
                                  {"webhook-timestamp", std::to_string(time)},
                                  {"webhook-signature", signature}}},
                                {"body", "{}"}}
                     .dump() +
                 "\n";
    };
    const std::string other =
        webhook::Signer::make(webhook::make_secret(webhook::SecretType::kV1a).value_or_throw())
            ->public_key();
    add(signer->public_key(), now, "v1,AAAA " + signer->sign("a", now, "{}"));
    add(signer->public_key(), now, signer->sign("a", now, "{} "));
    add(other, now, signer->sign("a", now, "{}"));
    add(signer->public_key(), now - 3'600, signer->sign("a", now - 3'600, "{}"));
    std::ofstream(folder_ / "check.py") << program;
    const Finished ended =
        run({.command = python({(folder_ / "check.py").string()}), .input = cases});
    EXPECT_EQ(ended.out, "True\nFalse\nFalse\nFalse\n") << ended.err;
}

}  // namespace
}  // namespace outbox::test
