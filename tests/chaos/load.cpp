#include "tests/chaos/load.h"

#include <chrono>
#include <optional>
#include <random>
#include <stdexcept>

#include "tests/support/pg.h"

namespace outbox::test {

namespace {

std::string event_sql(const std::string& key, long long n) {
    return "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES "
           "('Load', '" +
           key + "', 'Changed', jsonb_build_object('n', " + std::to_string(n) +
           ")) RETURNING id::text";
}

}  // namespace

Load::Load(std::string url, int keys) : url_(std::move(url)), keys_(keys) {
    Pg pg(url_);
    pg.exec("CREATE TABLE IF NOT EXISTS load_rows (key text PRIMARY KEY, n bigint NOT NULL)");
    pg.exec("INSERT INTO load_rows SELECT 'k' || g, 0 FROM generate_series(0, " +
            std::to_string(keys - 1) + ") g ON CONFLICT DO NOTHING");
}

Load::~Load() {
    stop();
}

void Load::start(int writers) {
    stopping_ = false;
    for (int i = 0; i < writers; ++i) threads_.emplace_back([this, i] { write(i); });
}

void Load::stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

std::vector<core::JournalLine> Load::produced() const {
    const std::scoped_lock lock(mutex_);
    return produced_;
}

void Load::write(int writer) {
    std::mt19937 random(static_cast<unsigned>(writer) + 1);
    std::optional<Pg> pg;
    while (!stopping_) {
        core::JournalLine line;
        bool committing = false;
        try {
            if (!pg) pg.emplace(url_);
            const std::string key = "k" + std::to_string(random() % static_cast<unsigned>(keys_));
            pg->exec("BEGIN");
            const long long n =
                pg->number("UPDATE load_rows SET n = n + 1 WHERE key = '" + key + "' RETURNING n");
            if (random() % 10 == 0) {  // a savepoint that leaves nothing
                pg->exec("SAVEPOINT s");
                pg->exec(event_sql(key, -1));
                pg->exec("ROLLBACK TO SAVEPOINT s");
            }
            line.id = pg->value(event_sql(key, n));
            line.key = key;
            line.n = n;
            if (random() % 50 == 0) pg->exec("SELECT pg_sleep(0.05)");  // a late commit
            if (random() % 10 == 0) {
                pg->exec("ROLLBACK");
                continue;
            }
            committing = true;
            pg->exec("COMMIT");
            ++committed_;
        } catch (const std::exception&) {
            // The server went away; whether the commit took place is not known.
            pg.reset();
            if (!committing) continue;
            line.state = core::JournalState::kIntent;
        }
        const std::scoped_lock lock(mutex_);
        produced_.push_back(std::move(line));
    }
}

}  // namespace outbox::test
