#include <outbox/consumer/redis.h>

#include "tests/conformance/queue_member.h"

namespace outbox::test {

Queue queue_of(const std::string& url) {
    return redis_queue(url);
}

}  // namespace outbox::test
