// The page of metrics of a service that consumes and leads sagas.
#include <iostream>
#include <vector>

#include <outbox/consumer/metrics.h>
#include <outbox/saga/saga.h>

int main() {
    const std::vector<outbox::SagaCount> sagas{
        {.name = "order", .state = outbox::SagaState::kRunning, .count = 2, .oldest_s = 30},
        {.name = "order", .state = outbox::SagaState::kStuck, .count = 1, .oldest_s = 600}};
    std::cout << outbox::consumer_metrics("billing", {}, 3) << outbox::saga_metrics(sagas);
}
