#include "tests/simulation/receiving/services.h"

#include <stdexcept>

#include "consumer/env.h"

namespace outbox::simulation {

namespace {

using What = IdempotentAnswer::What;

constexpr std::int64_t kPatience = 3 * kSecond;  // of a caller
constexpr int kCreated = 201;
constexpr const char* kScope = "somebody";
constexpr const char* kOperation = "POST /orders";

bool is_an_answer(What what) {
    return what == What::kFirst || what == What::kRepeat;
}

}  // namespace

void Services::start(World::Group group) {
    living_.push_back(std::make_shared<Process>(group, settings_.options));
}

bool Services::missing() const {
    return settings_.callers > 0 && living_.size() < static_cast<std::size_t>(settings_.services);
}

void Services::kill(std::size_t index) {
    world_.kill(living_[index]->group);
    living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Services::pause(std::size_t index, std::int64_t us) {
    world_.pause(living_[index]->group, world_.now_us() + us);
}

void Services::call() {
    asking_ = settings_.callers;
    for (int caller = 0; caller < settings_.callers; ++caller) {
        world_.spawn(World::kNoGroup, "caller", [this, caller] { ask(caller); });
    }
}

// Until the answer is known, and now and then once more.
void Services::ask(int caller) {
    Random& random = world_.random();
    const std::string key = "key-" + std::to_string(caller);
    std::string body = "order of " + std::to_string(caller);
    world_.sleep(random.between(1, 3'000) * kMs);
    for (bool known = false; !known || random.chance(settings_.repeats);) {
        const bool other = random.chance(settings_.others);
        const std::string sent = other ? "another" : body;
        if (random.chance(0.4)) {  // a second one beside it
            world_.spawn(World::kNoGroup, "caller", [this, key, sent] {
                if (const auto answer = send(key, sent)) answered(key, sent, *answer);
            });
        }
        const auto answer = send(key, sent);
        if (answer) answered(key, sent, *answer);
        if (answer && is_an_answer(answer->what)) {
            known = true;
            body = sent;  // what the key stands for
        } else if (answer && answer->what == What::kOtherRequest && !other) {
            body = "another";
        }
        world_.sleep(random.between(1, 400) * kMs);
    }
    --asking_;
}

// Nothing: no answer came.
std::optional<IdempotentAnswer> Services::send(const std::string& key, const std::string& body) {
    Random& random = world_.random();
    world_.sleep(random.between(100, 3'000));
    if (living_.empty()) return std::nullopt;
    const std::shared_ptr<Process> process = living_[random.index(living_.size())];
    const auto exchange = std::make_shared<Exchange>();
    exchange->key = key;
    exchange->body = body;
    world_.spawn(process->group, "request",
                 [this, process, exchange] { serve(*process, *exchange); });
    const std::int64_t until_us = world_.now_us() + kPatience;
    while (!exchange->over && world_.now_us() < until_us) world_.sleep(random.between(1, 20) * kMs);
    if (!exchange->over || random.chance(0.05)) return std::nullopt;
    return exchange->answer;
}

void Services::serve(Process& process, Exchange& exchange) {
    const IdempotentRequest request{kScope, exchange.key, kOperation, exchange.body};
    std::string failure;
    const consumer::CallersClock clock(clock_);
    try {
        exchange.answer =
            process.idempotency.answer(request, [&] { return work(process, request); });
    } catch (const std::exception& error) {
        failure = error.what();  // 500
    }
    exchange.over = true;
    if (!world_.tracing()) return;
    world_.trace("service " + std::to_string(process.group) + " answers " + exchange.key + " (" +
                 exchange.body + "): " +
                 (exchange.answer ? std::to_string(static_cast<int>(exchange.answer->what)) + " " +
                                        exchange.answer->body
                                  : failure));
}

IdempotentAnswer Services::work(Process& process, const IdempotentRequest& request) {
    const std::unique_ptr<Connection> client = connect_();
    dawdle(5);
    if (world_.tracing()) {
        world_.trace("service " + std::to_string(process.group) + " works on " +
                     std::string(request.key));
    }
    return settings_.lease_ms > 0 ? work_with_lease(*client, request)
                                  : work_in_one(*client, request);
}

IdempotentAnswer Services::work_in_one(Connection& client, const IdempotentRequest& request) {
    IdempotencyClaim claim;
    if (settings_.together) {
        claim = client.begin_and_claim(request);
    } else {
        client.must(client.begin());
        claim = client.claim(request, {});
    }
    if (!claim.is_new) {
        client.roll_back();
        return claim.answer;
    }
    dawdle(200);
    write_order(client, request);
    dawdle(20);
    const IdempotentAnswer answer = answer_to(request, claim.attempt);
    if (settings_.together) {
        client.complete_and_commit(request, claim, answer);
    } else {
        client.complete(request, claim, answer);
        client.must(client.commit());
    }
    return answer;
}

IdempotentAnswer Services::work_with_lease(Connection& client, const IdempotentRequest& request) {
    ClaimOptions options;
    options.lease_ms = settings_.lease_ms;
    client.must(client.begin());
    const std::int64_t asked_us = world_.now_us();
    const IdempotencyClaim claim = client.claim(request, options);
    if (!claim.is_new) {
        client.roll_back();
        return claim.answer;
    }
    client.must(client.commit());
    claimed(request, claim, asked_us);
    // What changes things elsewhere, and may take longer than the lease.
    dawdle(world_.random().chance(0.3) ? settings_.lease_ms * 3 : settings_.lease_ms / 4 + 1);
    if (world_.random().chance(0.05)) {
        client.must(client.begin());
        Key& key = keys_[std::string(request.key)];
        if (key.attempt == claim.attempt) key.until_us = 0;
        client.release(request, claim);
        client.must(client.commit());
        throw std::runtime_error("no stock");
    }
    client.must(client.begin());
    write_order(client, request);
    const IdempotentAnswer answer = answer_to(request, claim.attempt);
    client.complete(request, claim, answer);
    client.must(client.commit());
    return answer;
}

void Services::write_order(Connection& client, const IdempotentRequest& request) {
    client.must(client.run("INSERT INTO orders (key, body) VALUES ('" + std::string(request.key) +
                           "', '" + std::string(request.body) + "')"));
}

IdempotentAnswer Services::answer_to(const IdempotentRequest& request, std::uint32_t attempt) {
    return {What::kFirst,
            kCreated,
            {{"Location", "/orders/" + std::string(request.key)}, {"Set-Cookie", "session=1"}},
            "the " + std::string(request.body) + " by attempt " + std::to_string(attempt)};
}

// `asked_us`: the claim's statement came no earlier. One that was paused tells it late.
void Services::claimed(const IdempotentRequest& request, const IdempotencyClaim& claim,
                       std::int64_t asked_us) {
    Key& key = keys_[std::string(request.key)];
    const std::string name =
        "attempt " + std::to_string(claim.attempt) + " of " + std::string(request.key);
    world_.trace(name + " is claimed");
    if (claim.attempt < key.attempt) return;
    if (!key.body.empty() && key.body != request.body) {
        judge_.violation(name + " has another body than the one before");
    }
    if (key.answer) judge_.violation(name + " was claimed, and there is an answer");
    if (claim.attempt == key.attempt) judge_.violation(name + " came twice");
    if (world_.now_us() < key.until_us) {
        judge_.violation(name + " was claimed while the one before had its lease");
    }
    key.body = request.body;
    key.attempt = claim.attempt;
    key.until_us = asked_us > leases_since_us_ ? asked_us + settings_.lease_ms * kMs : 0;
}

void Services::answered(const std::string& key, const std::string& body,
                        const IdempotentAnswer& answer) {
    ++answers_;
    const std::string what = "the answer to " + key + " (" + body + "): " + answer.body;
    if (answer.what == What::kNoAnswer || answer.what == What::kRefused) {
        judge_.violation(what);
        return;
    }
    Key& known = keys_[key];
    if (answer.what == What::kOtherRequest && known.answer && known.body == body) {
        judge_.violation("refused as another request, " + what);
    }
    if (!is_an_answer(answer.what)) return;
    if (answer.status != kCreated || !answer.body.starts_with("the " + body + " by")) {
        judge_.violation("another request's, " + what);
    }
    if (answer.what == What::kRepeat && answer.headers.size() != 1) {
        judge_.violation("with other headers, " + what);
    }
    if (known.answer && known.answer->body != answer.body) {
        judge_.violation("not what was answered before, " + what + ", but " + known.answer->body);
    }
    known.body = body;
    known.answer = answer;
}

void Services::dawdle(std::int64_t most_ms) {
    Random& random = world_.random();
    if (random.chance(0.6)) return;
    world_.sleep(random.between(10, most_ms * kMs));
}

void Services::forget_leases() {
    leases_since_us_ = world_.now_us();
    for (auto& [name, key] : keys_) key.until_us = 0;
}

void Services::finish(const Rows& rows) {
    std::map<std::string, std::vector<std::string>> orders;
    for (const auto& row : rows) orders[row[0]].push_back(row[1]);
    for (const auto& [key, known] : keys_) {
        if (!known.answer) continue;
        const auto found = orders.find(key);
        if (found == orders.end()) {
            judge_.violation(key + " was answered and has no order");
        } else if (found->second.front() != known.body) {
            judge_.violation(key + " has the order of another request");
        }
    }
    for (const auto& [key, bodies] : orders) {
        if (bodies.size() > 1) {
            judge_.violation(key + " has " + std::to_string(bodies.size()) + " orders");
        }
    }
}

}  // namespace outbox::simulation
