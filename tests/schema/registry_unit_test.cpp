// Answers of registries and URLs of them, without a server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/registry_answers.h"
#include "schema/registry_config.h"
#include "schema/registry_errors.h"

namespace outbox::test {
namespace {

using schema::Concern;
using schema::concern_of;
using schema::make_registry_config;
using schema::read_registered;
using schema::read_types;
using schema::Registered;
using schema::registry_weakness;
using schema::RegistryFault;
using testing::HasSubstr;

std::string fault_of(int status, std::string_view body) {
    const auto answer = read_registered(status, "", body);
    const auto* fault = std::get_if<RegistryFault>(&answer);
    return fault == nullptr ? "" : fault->name;
}

TEST(RegistryAnswers, ReadsWhatIsRegistered) {
    const auto answer = read_registered(200, "", R"({"id": 4294967295, "subject": "s", "version": 2,
        "schemaType": "JSON", "schema": "{\"a\": \"\\u00e9\"}", "more": [],
        "references": [{"name": "n", "subject": "r", "version": 7}]})");
    const auto& found = std::get<Registered>(answer);
    EXPECT_EQ(found.id, 4294967295U);
    EXPECT_EQ(found.type, "JSON");
    EXPECT_EQ(found.text, R"({"a": "\u00e9"})");
    ASSERT_EQ(found.references.size(), 1U);
    EXPECT_EQ(found.references[0].name + found.references[0].subject + found.references[0].version,
              "nr7");
    EXPECT_EQ(std::get<Registered>(read_registered(200, "", R"({"id":1,"schema":"{}"})")).type,
              "AVRO");
}

TEST(RegistryAnswers, TellsOneSchemaFromTheWholeRegistry) {
    for (const int code : {40401, 40402, 40403, 40404, 40406, 42202}) {
        const std::string body = R"({"error_code": )" + std::to_string(code) + "}";
        EXPECT_EQ(fault_of(code / 100, body), "UNKNOWN") << code;
    }
    EXPECT_EQ(concern_of({"UNKNOWN"}), Concern::kSchema);
    EXPECT_EQ(fault_of(404, "<html>"), "NO REGISTRY");
    EXPECT_EQ(fault_of(404, R"({"error_code": 0})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(404, ""), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, "<!DOCTYPE html>"), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, R"({"id": -1, "schema": "{}"})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, R"({"id": 1.5, "schema": "{}"})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, R"({"id": 4294967296, "schema": "{}"})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, R"({"id": 1, "schema": {}})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(200, R"({"id": 1, "schema": "{}", "references": [{}]})"), "NO REGISTRY");
    EXPECT_EQ(fault_of(401, ""), "UNAUTHORIZED");
    EXPECT_EQ(fault_of(403, "<html>"), "REFUSED");
    EXPECT_EQ(fault_of(403, R"({"error_code": 40301})"), "FORBIDDEN");
    EXPECT_EQ(fault_of(429, ""), "BUSY");
    EXPECT_EQ(fault_of(502, "<html>"), "BROKEN");
    EXPECT_EQ(fault_of(301, ""), "REDIRECT");
    for (const char* const name : {"UNAUTHORIZED", "BUSY", "TIMEOUT", "CONNECT"}) {
        EXPECT_EQ(concern_of({name}), Concern::kRegistry) << name;
    }
    // What these are of the registry itself has to tell.
    for (const int status : {301, 400, 403, 404, 414, 500, 503}) {
        EXPECT_EQ(concern_of({fault_of(status, "<html>")}), Concern::kUnclear) << status;
    }
}

TEST(RegistryAnswers, ARegistryHasTypes) {
    EXPECT_EQ(read_types(200, "", R"(["JSON", "AVRO"])").name, "");
    for (const std::string_view body :
         {"{}", "[]", "7", "[1]", R"({"types": ["JSON"]})", "", "<"}) {
        EXPECT_EQ(read_types(200, "", body).name, "NO REGISTRY") << body;
    }
    EXPECT_EQ(read_types(302, "", R"(["JSON"])").name, "REDIRECT");
    EXPECT_EQ(read_types(401, "", "").name, "UNAUTHORIZED");
}

TEST(RegistryConfig, ReadsUrls) {
    const auto plain = make_registry_config("http://registry:8081");
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->base, "http://registry:8081");
    const auto secure = make_registry_config(
        "https://relay:s3cret@[2001:db8::1]/apis/ccompat/v7/?ca_file=/ca.pem&verify=true");
    ASSERT_TRUE(secure.ok());
    EXPECT_EQ(secure->base, "https://[2001:db8::1]:443/apis/ccompat/v7");
    EXPECT_EQ(secure->user + secure->password + secure->ca_file, "relays3cret/ca.pem");
    const auto token = make_registry_config("https://:t0ken@registry");
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(token->user + token->password, "t0ken");
}

TEST(RegistryConfig, RefusesWhatIsNone) {
    for (const std::string_view url :
         {"", "registry", "gopher://registry", "https://", "https://a,b", "https://relay@registry",
          "https://registry?color=red", "http://registry?ca_file=/ca.pem",
          "https://registry?cert_file=/c", "https://a:b@registry?password_file=/p",
          "https://registry:99999"}) {
        const auto config = make_registry_config(url);
        ASSERT_FALSE(config.ok()) << url;
        EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid) << url;
    }
}

TEST(RegistryConfig, TellsAWayInClear) {
    EXPECT_THAT(registry_weakness("http://registry.example.com"), HasSubstr("in clear"));
    EXPECT_THAT(registry_weakness("https://registry.example.com?verify=false"),
                HasSubstr("without proof"));
    EXPECT_EQ(registry_weakness("https://registry.example.com"), "");
    EXPECT_EQ(registry_weakness("http://localhost:8081"), "");
}

}  // namespace
}  // namespace outbox::test
