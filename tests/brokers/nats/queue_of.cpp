#include <outbox/consumer/nats.h>

#include "tests/conformance/queue_member.h"

namespace outbox::test {

Queue queue_of(const std::string& url) {
    return nats_queue(url);
}

}  // namespace outbox::test
