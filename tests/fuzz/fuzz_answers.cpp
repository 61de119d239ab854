// What services of AWS, S3, those who hand out their keys, JetStream and receivers of spans may
// answer: an outcome for each message, whatever comes, nothing that a terminal would obey, and no
// key that is more than one word. And what a message may say of a payload that is kept elsewhere.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "brokers/nats/answers.h"
#include "brokers/nats/stream_numbers.h"
#include "brokers/sns/answers.h"
#include "brokers/sqs/answers.h"
#include "claim/claim.h"
#include "claim/s3_answers.h"
#include "core/utf8.h"
#include "net/aws_answers.h"
#include "tracing/otlp_json.h"

namespace {

void must_be_printable(const std::string& text) {
    if (outbox::to_printable(text) != text) std::abort();
}

// Each of its parts stands in a header.
void must_be_one_word(const outbox::net::AwsCredentials& key) {
    for (const std::string& part : {key.access_key, key.secret_key, key.session_token}) {
        if (part.empty() || part.find_first_of(" \r\n\t") != std::string::npos) std::abort();
        must_be_printable(part);
    }
}

template <typename ReadBatch, typename ReadFault>
void read(int status, std::string_view body, std::size_t count, const ReadBatch& read_batch,
          const ReadFault& read_fault) {
    const auto faults = read_batch(body, count);
    if (faults.size() != count) std::abort();
    for (const auto& fault : faults) {
        if (fault) must_be_printable(fault->name + fault->text);
    }
    const auto fault = read_fault(status, body);
    if (fault.name.empty() || fault.text.empty()) std::abort();
    must_be_printable(fault.name + fault.text);
}

void read_jetstream(std::string_view body) {
    if (const auto fault = outbox::nats::fault_of_answer(body)) {
        if (fault->name.empty()) std::abort();
        must_be_printable(fault->name + fault->text);
    }
    for (const auto& stream : outbox::nats::read_streams(body)) {
        if (stream.name.empty()) std::abort();
    }
    if (const auto consumer = outbox::nats::read_consumer(body)) {
        if (consumer->ack_wait < consumer->ack_wait_min) std::abort();
    }
    if (const auto accepted = outbox::nats::read_accepted(body)) {
        if (body.find(accepted->stream) == std::string_view::npos) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::size_t count = data[0] % 11;
    const int status = data[0] * 3;
    read(status, body, count, outbox::sqs::read_batch, outbox::sqs::read_fault);
    read(status, body, count, outbox::sns::read_batch, outbox::sns::read_fault);
    must_be_printable(outbox::sqs::read_queue_url(body));
    if (const auto urls = outbox::sqs::read_queue_urls(body)) {
        for (const std::string& url : *urls) must_be_printable(url);
    }
    if (const auto arns = outbox::sns::read_arns(body)) {
        for (const std::string& arn : *arns) must_be_printable(arn);
    }
    const auto refusal = outbox::claim::read_s3_fault(status, body);
    if (refusal.name.empty() || refusal.text.empty()) std::abort();
    must_be_printable(refusal.name + refusal.text);
    for (const auto& handed :
         {outbox::net::read_key_document(body), outbox::net::read_assumed_role(body)}) {
        if (handed) must_be_one_word(handed->key);
    }
    must_be_printable(outbox::net::read_key_refusal(body));
    must_be_printable(outbox::net::read_role_name(body));
    read_jetstream(body);
    must_be_printable(outbox::tracing::read_partial_success(body).why);
    const auto claim = outbox::claim::read_claim(body);
    if (claim.ok() && *claim && !outbox::claim::is_object_name((*claim)->name())) std::abort();
    if (!claim.ok()) must_be_printable(claim.error().message);
    return 0;
}
