#pragma once

#include <memory>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "tests/simulation/database.h"
#include "tests/simulation/settings.h"

namespace outbox::simulation {

/// One relay's way to the database: calls take time, and break before or after their effect.
class Wire {
  public:
    Wire(World& world, Database& database, Judge& judge, const Settings& settings)
        : world_(world), database_(database), judge_(judge), settings_(settings) {}

    /// A term begins: it works on what the server is now.
    void begin_term() { timeline_ = database_.timeline(); }

    /// Runs `effect` somewhere in a call; the call may fail although the effect took place.
    template <typename Effect>
    auto call(Effect effect) -> decltype(effect()) {
        travel();
        if (broken()) return lost();
        if (database_.timeline() != timeline_ && timeline_ != 0) return changed();
        auto result = effect();
        travel();
        if (broken()) return lost();
        return result;
    }

  private:
    void travel();
    bool broken();
    static Status lost() {
        return {ErrorCode::kConnectionLost, Advice::kRetryDestination, "the connection broke"};
    }

    static Status changed() {
        return {ErrorCode::kServerChanged, Advice::kStop, "another timeline"};
    }

    World& world_;
    Database& database_;
    Judge& judge_;
    const Settings& settings_;
    int timeline_ = 0;
};

/// The database as one relay process sees it.
class SimSource final : public spi::Source {
  public:
    SimSource(World& world, Database& database, Judge& judge, const Settings& settings, int relay)
        : world_(world),
          database_(database),
          judge_(judge),
          settings_(settings),
          relay_(relay),
          wire_(world, database, judge, settings),
          lease_wire_(world, database, judge, settings) {}

    [[nodiscard]] std::string table_name() const override { return "outbox_events"; }
    [[nodiscard]] bool stable_positions() const override { return true; }
    void begin_term() override { wire_.begin_term(); }
    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string& route,
                                                     spi::PositionSet finished) override;
    Result<std::unique_ptr<spi::Recorder>> open_recorder() override;
    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override;
    Result<std::vector<spi::Finding>> check() override { return std::vector<spi::Finding>{}; }

    /// The process's host is gone: the server will not learn that its connections are.
    void vanish() { vanished_ = true; }

  private:
    World& world_;
    Database& database_;
    Judge& judge_;
    const Settings& settings_;
    int relay_;
    Wire wire_;
    Wire lease_wire_;  // whose calls mean the same on every timeline
    bool vanished_ = false;
};

}  // namespace outbox::simulation
