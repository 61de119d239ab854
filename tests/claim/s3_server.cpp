#include "tests/claim/s3_server.h"

namespace outbox::test {
namespace {

const std::string kSource = OUTBOX_SOURCE_DIR;

}  // namespace

S3Server::S3Server(const std::string& settings)
    : BrokerServer({.name = "s3",
                    .ready = "Started Server",
                    .settings = settings,
                    .python = {kSource + "/script/clients", "python"},
                    .client = kSource + "/tests/claim/s3_client.py"}) {
    start();
    client({std::to_string(port()), "make"});
}

std::string S3Server::store(const std::string& bucket, const std::string& secret) {
    return "s3://relay:" + secret + "@" + bucket +
           "/from/outbox?endpoint=http://127.0.0.1:" + std::to_string(port());
}

std::string S3Server::read(const std::string& key) {
    return decode_base64(client({std::to_string(port()), "read", "from/outbox/" + key}));
}

void S3Server::remove(const std::string& key) {
    client({std::to_string(port()), "remove", "from/outbox/" + key});
}

std::size_t S3Server::count() {
    return std::stoul(client({std::to_string(port()), "count"}));
}

S3Server& shared_s3() {
    static S3Server server;
    return server;
}

}  // namespace outbox::test
