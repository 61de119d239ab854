#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/sqlite/client.h"
#include "databases/sqlite/source/table.h"
#include "relay/tenants.h"

namespace outbox::sqlite {

/// The routes of a source and their ledgers as the side tables hold them. Each call is a part of
/// the caller's write transaction.
class Ledger {
  public:
    explicit Ledger(const Table& table) : table_(table) {}

    /// See `spi::Recorder::begin`.
    Result<spi::Beginning> begin(Database& database, std::span<const spi::RouteName> routes) const;
    Result<std::vector<std::string>> destinations(Database& database,
                                                  std::span<const std::string> routes) const;
    Status set_destination(Database& database, const std::string& route,
                           const std::string& name) const;

    /// The route has finished these, whatever number `finished` gives it.
    Status add(Database& database, const std::string& route, const spi::Finished& finished) const;
    /// Of a native table: what every route has finished; nothing where there is no route.
    Result<spi::PositionSet> finished_by_all(Database& database) const;
    /// These leave the ledgers of all routes.
    Status subtract(Database& database, std::span<const spi::Position> positions) const;
    /// Segments below the lowest row go: what they hold somebody else has removed. Gives a position
    /// below which nothing is left to be known.
    Result<spi::Position> forget_below_rows(Database& database) const;

  private:
    struct Known {
        std::string name;
        std::string destination;
        std::int64_t since_us = 0;
    };
    Result<std::vector<Known>> load_routes(Database& database) const;
    Result<spi::PositionSet> load(Database& database, const std::string& route) const;
    Result<spi::PositionSet> common(Database& database, std::span<const Known> known) const;
    Status save(Database& database, const std::string& route, std::int64_t segment,
                const spi::PositionSet& set) const;
    Status add_bits(Database& database, const std::string& route,
                    std::span<const spi::Position> positions, const char* write,
                    const char* column) const;
    Status check_life(Database& database, std::span<const Known> known, spi::Beginning& out) const;
    Status check_life_of_ids(Database& database, spi::Beginning& out) const;
    Status rename(Database& database, const std::string& from, const std::string& to) const;
    Result<std::vector<relay::HeldRoute>> held_routes(Database& database) const;
    Status take_over_tenants(Database& database, spi::Beginning& out) const;
    Status end_former_lease(Database& database, const std::string& former) const;
    Status take_over_dead(Database& database, const std::string& former, std::int64_t& count) const;
    Status inherit_routes(Database& database, const std::string& former) const;
    Status take_over_ledgers(Database& database, const std::string& former) const;
    Status refuse_open_events(Database& database, const std::string& former) const;
    Status take_over_names(Database& database, std::span<const spi::RouteName> routes,
                           spi::Beginning& out) const;
    Result<bool> has_unfinished(Database& database, const std::string& route) const;
    Status refuse_gone(Database& database, std::span<const spi::RouteName> routes,
                       const std::vector<relay::HeldRoute>& held) const;
    Status forget_gone(Database& database, std::span<const spi::RouteName> routes,
                       spi::Beginning& out) const;
    Status take_filters(Database& database, std::span<const spi::RouteName> routes) const;
    Status take_back_passed(Database& database, const std::string& route, bool all) const;
    Status take_back_segment(Database& database, const std::string& route, std::int64_t segment,
                             bool all) const;
    Status begin_anew(Database& database) const;
    Status part_lives(Database& database) const;
    Result<std::string> producer(const Database& database, const Known& route) const;
    Status add_new(Database& database, std::span<const spi::RouteName> routes) const;

    const Table& table_;
};

/// A segment's bits as the side table has them.
[[nodiscard]] std::span<const std::uint8_t, spi::PositionSet::kSegmentBytes> bits_of(
    std::string_view blob);

}  // namespace outbox::sqlite
