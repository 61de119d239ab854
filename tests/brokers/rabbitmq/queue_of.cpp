#include <outbox/consumer/rabbitmq.h>

#include "tests/conformance/queue_member.h"

namespace outbox::test {

Queue queue_of(const std::string& url) {
    return rabbitmq_queue(url);
}

}  // namespace outbox::test
