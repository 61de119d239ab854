// Writes what fuzzing begins with: write_seeds FOLDER CORPUS makes FOLDER/<target> anew, also of
// CORPUS/<target>.txt, where each line is an input, with \\, \n and \xHH for what is not printable.

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "databases/postgres/stream/value_text.h"
#include "tests/databases/postgres/pgoutput_bytes.h"
#include "tests/fuzz/fuzz_table.h"

namespace {

using namespace std::string_literals;

using namespace outbox;
using postgres::RowColumn;
using test::Bytes;

constexpr std::int64_t kTable = 16'400;

struct Sent {
    std::int64_t oid;
    std::string value;
};

std::string numeric() {
    return Bytes().int16(3).int16(1).int16(0x4000).int16(4).int16(12).int16(3456).int16(7000).str();
}

std::vector<Sent> sent_texts() {
    return {{25, "some words"},
            {1042, "padded   "},
            {2950, "0123456789abcdef"},
            {21, Bytes().int16(-5).str()},
            {23, Bytes().int32(70'000).str()},
            {20, Bytes().int64(1LL << 40).str()},
            {16, std::string(1, '\1')},
            {1700, numeric()},
            {114, "{\"a\" : null}"},
            {3802, "\1{\"a\": null, \"b\": [1, null]}"},
            {20'000, "a label"}};
}

// Relation, then an insert of a row whose text fields have that type.
std::vector<Bytes> table_of(const Sent& sent) {
    const postgres::StreamTable table = test::fuzz_table();
    std::vector<std::pair<std::string, Sent>> columns;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        Sent column = sent;
        if (i == RowColumn::kPosition) column = {20, Bytes().int64(7).str()};
        if (i == RowColumn::kTenantId) column = {25, "acme"};
        if (i == RowColumn::kOccurredAt) column = {1184, Bytes().int64(1'000'000).str()};
        columns.emplace_back(table.columns[i], column);
    }
    Sent metadata = sent;
    if (metadata.oid == 114) metadata.oid = 25;
    for (const std::string& name : table.metadata_columns) columns.emplace_back(name, metadata);
    Bytes relation;
    Bytes insert;
    const auto count = static_cast<std::int64_t>(columns.size());
    relation.byte('R').int32(kTable).text("s").text("t").byte('d').int16(count);
    insert.byte('I').int32(kTable).byte('N').int16(count);
    for (const auto& [name, column] : columns) {
        relation.column(name, column.oid);
        insert.binary(column.value);
    }
    return {Bytes().byte('B').int64(1).int64(2).int32(3), relation, insert,
            Bytes().byte('C').byte(0).int64(1).int64(2).int64(3)};
}

std::vector<Bytes> others() {
    return {Bytes().byte('O').int64(1).text("origin"),
            Bytes().byte('Y').int32(20'001).text("").text("text"),
            Bytes()
                .byte('U')
                .int32(kTable)
                .byte('K')
                .int16(1)
                .as_text("1")
                .byte('N')
                .int16(1)
                .unchanged(),
            Bytes().byte('D').int32(kTable).byte('O').int16(1).null(),
            Bytes().byte('T').int32(1).byte(3).int32(kTable),
            Bytes().byte('M').byte(1).int64(1).text("prefix").int32(2).raw("hi"),
            Bytes().byte('w').int64(1).int64(2).int64(3).raw("x"),
            Bytes().byte('k').int64(1).int64(2).byte(1)};
}

std::string stream_of(const std::vector<Bytes>& messages) {
    Bytes out;
    for (const Bytes& message : messages) {
        out.int16(static_cast<std::int64_t>(message.str().size())).raw(message);
    }
    return out.str();
}

void write(const std::filesystem::path& folder, std::size_t number, const std::string& bytes) {
    std::ofstream file(folder / std::to_string(number), std::ios::binary);
    file << bytes;
    file.close();
    if (!file) throw std::runtime_error("cannot write to " + folder.string());
}

std::string unescaped(std::string_view line) {
    std::string out;
    while (!line.empty()) {
        const std::size_t end = line.find('\\');
        out += line.substr(0, end);
        if (end == std::string_view::npos) break;
        line.remove_prefix(end + 1);
        const char kind = line.empty() ? '\0' : line.front();
        unsigned char byte = kind == 'n' ? '\n' : '\\';
        const char* const digits = line.data() + 1;
        if (kind == 'x' && line.size() > 2) {
            if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
                throw std::runtime_error("no two hexadecimal digits behind \\x");
            }
            line.remove_prefix(2);
        } else if (kind != 'n' && kind != '\\') {
            throw std::runtime_error("a backslash with neither n, x nor a backslash behind it");
        }
        out += static_cast<char>(byte);
        line.remove_prefix(1);
    }
    return out;
}

// Gives each target's folder what the repository has for it.
std::size_t write_corpus(const std::filesystem::path& corpus, const std::filesystem::path& root) {
    std::size_t number = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
        std::ifstream file(entry.path(), std::ios::binary);
        for (std::string line; std::getline(file, line);) {
            write(root / entry.path().stem(), ++number, unescaped(line));
        }
        if (file.bad()) throw std::runtime_error("cannot read " + entry.path().string());
    }
    return number;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: write_seeds FOLDER CORPUS\n";
        return 2;
    }
    const std::filesystem::path root(argv[1]);
    for (const char* target : {"fuzz_stream", "fuzz_values", "fuzz_redact", "fuzz_protocols",
                               "fuzz_answers", "fuzz_webhook", "fuzz_formats", "fuzz_schema",
                               "fuzz_config", "fuzz_headers", "fuzz_journal"}) {
        std::filesystem::remove_all(root / target);
        std::filesystem::create_directories(root / target);
    }
    std::size_t number = write_corpus(argv[2], root);
    for (const Sent& sent : sent_texts()) {
        write(root / "fuzz_stream", ++number, stream_of(table_of(sent)));
        const auto type = sent.oid == 20'000
                              ? postgres::WireType::kText
                              : postgres::built_in_type(static_cast<std::uint32_t>(sent.oid));
        write(root / "fuzz_values", number, static_cast<char>(type) + sent.value);
    }
    write(root / "fuzz_stream", ++number, stream_of(others()));
    std::vector<Bytes> short_row = table_of(sent_texts()[0]);
    short_row.push_back(
        Bytes().byte('I').int32(kTable).byte('N').int16(1).binary(test::big_endian(9)));
    write(root / "fuzz_stream", ++number, stream_of(short_row));
    for (const char* secret :
         {"s3cret", "it's a secret", "p@ss:w/rd?a=b", "two\nlines", "100%2F"}) {
        for (char form = 0; form < 12; ++form) {
            write(root / "fuzz_redact", ++number, std::string(1, form) + secret);
        }
    }
    for (const std::string& said :
         {"INFO {\"a\":1}\r\nPING\r\n+OK\r\n-ERR 'Stale Connection'\r\n"s,
          "MSG a.b 1 5\r\nhello\r\nMSG a 2 r 0\r\n\r\n"s,
          "HMSG a 1 r 24 26\r\nNATS/1.0\r\nb*: UTF-8''\r\n\r\nhi\r\n"s,
          "HMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"s, "\x20\x0B\0\0\x08\x21\0\5\x27\0\1\0\0"s,
          "\x40\2\1\2\x40\4\1\3\x10\0\x40\3\1\4\x87"s, "\xD0\0\xE0\x07\x8B\x05\x1F\0\2by"s,
          "\0\0\0\x0C\0\0\0\x08\x08\x07\x3A\4\x08\1\x10\2"s,
          "\0\0\0\x13\0\0\0\x0F\x08\x18\xC2\1\x0A\x0A\2hi\x18\1\x20\5\x28\1"s,
          "\0\0\0\x11\0\0\0\x0D\x08\x0E\x72\x09\x08\1\x10\x0B\x1A\3bad"s}) {
        for (char step = 0; step < 16; step += 5) {
            write(root / "fuzz_protocols", ++number, std::string(1, step) + said);
        }
    }
    for (
        const std::string& answer :
        {R"({"Successful":[{"Id":"0"},{"Id":"1"}],"Failed":[{"Id":"2","Code":"AWS.SimpleQueueService.X","SenderFault":true,"Message":"m"}]})"s,
         R"({"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"Message must be shorter than"})"s,
         R"({"QueueUrl":"https://h/1/q","QueueUrls":["a"]})"s,
         R"(<PublishBatchResponse><PublishBatchResult><Failed><member><Id>1</Id><Code>InvalidParameter</Code><Message>a &#1; too long</Message><SenderFault>true</SenderFault></member></Failed><Successful><member><Id>0</Id></member></Successful></PublishBatchResult></PublishBatchResponse>)"s,
         R"(<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><ErrorResponse><Error><Code>NotFound</Code><Message><![CDATA[no]]>&b;</Message></Error></ErrorResponse>)"s,
         R"(<ListTopicsResponse><ListTopicsResult><Topics><member><TopicArn>a</TopicArn></member></Topics></ListTopicsResult></ListTopicsResponse>)"s,
         "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>"s,
         R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"B","Token":"C","Expiration":"2026-11-25T17:10:40.5Z"})"s,
         "<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>B</SecretAccessKey><SessionToken>C</SessionToken><Expiration>2026-11-25T17:10:40+00:00</Expiration></Credentials>"s,
         "relay-role\nother"s,
         "{\"claim-check\":\"s3://b/" + std::string(64, 'a') +
             "\",\"claim-check-size\":\"5\",\"claim-check-sha256\":\"" + std::string(64, 'b') +
             "\"}"}) {
        write(root / "fuzz_answers", ++number, "\x0A" + answer);
    }
    for (const char* given :
         {"https://hooks.example:8443/a?b=c", "http://[::ffff:127.0.0.1]/", "https://0x7f.1/",
          "https://user@a.example/#b", "10.1.0.0/16, hooks.internal", "64:ff9b::8.8.8.8",
          "fd00::/8", "order.*, invoice.paid",
          R"({"webhook-id": "a", "note": "b\nc", "host": "d"})", "120",
          "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
          "Sun Nov  6 08:49:37 1994", "c2VjcmV0"}) {
        write(root / "fuzz_webhook", ++number, given);
    }
    for (
        const std::string& message :
        {"{\"content-type\":\"application/"
         "cloudevents+json\"}\0{\"specversion\":\"1.0\",\"id\":\"a\","
         "\"source\":\"/s\",\"type\":\"t\",\"datacontenttype\":\"a/b\",\"data_base64\":\"AA==\"}"s,
         "{\"ce-specversion\":\"1.0\",\"ce-id\":\"%20\",\"ce-source\":\"\\\"a\\\"\",\"ce-type\":\"t\"}\0{}"s,
         "id\0type\0a b\0schema\0{\"region\":\"eu\",\"X-a\":\"b\"}\0{\"a\":[1e5,\"\\u00e9\"]}"s,
         "id\0type\0\0\0{\"content-type\":\"text/plain\"}\0text"s}) {
        for (char step = 0; step < 8; ++step) {
            const std::string head{static_cast<char>(step % 2), static_cast<char>(step / 2)};
            write(root / "fuzz_formats", ++number, head + message);
        }
    }
    for (
        const char* schema :
        {R"({"type":["object","null"],"required":["a"],"properties":{"a":{"$ref":"#/definitions/d"}},"definitions":{"d":{"minimum":0.5,"multipleOf":0.25}}})",
         R"({"$schema":"http://json-schema.org/draft-04/schema#","id":"http://a/b","minimum":1,"exclusiveMinimum":true,"items":[{"$ref":"other"},{"$ref":"#"}],"additionalItems":false})",
         R"({"$schema":"http://json-schema.org/draft-06/schema#","$id":"http://a/b","contains":{"const":1},"propertyNames":{"pattern":"^(a|b)+[^c]$"},"uniqueItems":true})",
         R"({"if":{"maxLength":3},"then":{"pattern":"(?!x)\\d\\u00e9"},"else":{"enum":["abcd",[1,{}],1e400]},"anyOf":[true,{"not":{}}],"oneOf":[{}],"patternProperties":{"a":{"$ref":"#"}},"dependencies":{"a":["b"],"c":{"minProperties":2}}})"}) {
        for (const char* payload : {R"({"a":1.25,"b":["\ud83d\ude00",null,true]})", "[1,1.0,\"x\"]",
                                    "\"abcd\"", "-1e400"}) {
            write(root / "fuzz_schema", ++number,
                  "\3"s + '\0' + schema + '\0' + R"({"$id":"x","not":{"type":"string"}})" + '\0' +
                      payload);
            write(root / "fuzz_schema", ++number, "\1"s + '\0' + payload);
        }
    }
    for (const char status : {'\0', '\4', '\5'}) {
        for (
            const char* body :
            {R"({"id":7,"subject":"s","version":1,"schemaType":"JSON","schema":"{}","references":[{"name":"n","subject":"r","version":2}]})",
             R"({"error_code":40401,"message":"no such subject"})", "<!DOCTYPE html>", ""}) {
            write(root / "fuzz_schema", ++number, "\0"s + status + "http://x" + '\0' + body);
        }
    }
    return 0;
}
