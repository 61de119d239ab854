#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "saga/store.h"

namespace outbox::test {

// A database that is a value: a transaction works on a copy, a commit assigns it.
struct MemoryDatabase {
    std::map<std::string, saga::Instance, std::less<>> sagas;
    std::map<std::pair<std::string, std::string>, std::string> steps;
    std::set<std::string, std::less<>> inbox;
    std::map<std::string, int> effects;  // by step: how often done, less how often undone
    std::vector<Event> outbox;
};

class MemoryStore final : public saga::Store {
  public:
    explicit MemoryStore(MemoryDatabase& database) : database_(database) {}

    void require_transaction(const std::string&) override {}
    bool insert(const saga::Instance& saga, const saga::Saving&) override {
        return database_.sagas.emplace(saga.id, saga).second;
    }
    std::optional<saga::Instance> load(std::string_view id) override {
        const auto found = database_.sagas.find(id);
        if (found == database_.sagas.end()) return std::nullopt;
        return found->second;
    }
    void save(const saga::Instance& saga, const saga::Saving&) override {
        database_.sagas[saga.id] = saga;
    }
    saga::StepEntry enter_step(const saga::StepKey& key, std::string_view state) override {
        return database_.steps.try_emplace(name_of(key), state).second
                   ? saga::StepEntry::kNew
                   : saga::StepEntry::kThere;
    }
    bool change_step(const saga::StepKey& key, std::string_view from,
                     std::string_view to) override {
        const auto found = database_.steps.find(name_of(key));
        if (found == database_.steps.end() || found->second != from) return false;
        found->second = to;
        return true;
    }
    std::string emit(const Event& event, const EmitOptions&) override {
        database_.outbox.push_back(event);
        return event.id;
    }

  private:
    static std::pair<std::string, std::string> name_of(const saga::StepKey& key) {
        return {std::string(key.leader) + "/" + std::string(key.saga_id), std::string(key.step)};
    }
    MemoryDatabase& database_;
};

}  // namespace outbox::test
