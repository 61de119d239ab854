#include "brokers/kafka/refusal.h"

namespace outbox::kafka {
namespace {

// <openssl/x509_vfy.h>; the numbers are part of its ABI.
constexpr int kNotYetValid = 9;
constexpr int kExpired = 10;
constexpr int kOtherHost = 62;
constexpr int kOtherAddress = 64;

constexpr const char* kSsl = "_SSL";

// Earlier ones send the nonce twice, which Kafka takes no more from 4.0 on.
constexpr int kScramVersion = 0x02060100;

Refusal certificate_refused(int error) {
    switch (error) {
        case kExpired:
            return {"the broker's certificate has expired", "renew it at the broker", kSsl};
        case kNotYetValid:
            return {"the broker's certificate is not valid yet",
                    "check this machine's clock and the certificate", kSsl};
        case kOtherHost:
        case kOtherAddress:
            return {"the broker's certificate is for another host",
                    "use a name that stands in the certificate, in the URL and in the broker's "
                    "advertised.listeners",
                    kSsl};
        default:
            return {"the broker's certificate is not signed by a CA that is trusted here",
                    "set kafka.ssl.ca.location to the file of the CA that signed it", kSsl};
    }
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace

Refusal explain(std::string_view name, std::string_view text, int certificate_error, int version) {
    if (certificate_error != 0 && contains(text, "certificate verify failed")) {
        return certificate_refused(certificate_error);
    }
    if (contains(text, "SSL alert number")) {
        return {std::string(text),
                "the broker refuses our certificate, or wants one: check "
                "kafka.ssl.certificate.location and kafka.ssl.key.location",
                kSsl};
    }
    if (contains(text, "invalid credentials with SASL mechanism SCRAM") &&
        version < kScramVersion) {
        return {std::string(text),
                "check kafka.sasl.username and kafka.sasl.password; Kafka 4.0 and later take SCRAM "
                "only from librdkafka 2.6.1 on, and this one is older",
                std::string(name)};
    }
    return {std::string(text), {}, std::string(name)};
}

std::string_view options_remedy(std::string_view text) {
    if (contains(text, "sasl.kerberos")) {
        return "; set kafka.sasl.mechanism (without it, it is Kerberos)";
    }
    if (!text.starts_with("ssl.") && !contains(text, "Private key")) return {};
    return "; check that the files of kafka.ssl.* exist, that this user may read them, and that "
           "key and certificate belong together";
}

}  // namespace outbox::kafka
