#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/source/table.h"
#include "relay/tenants.h"

namespace outbox::postgres {

/// The routes of a source and their ledgers as the side tables hold them. Says what is to be
/// written; `begin` reads. Not thread-safe.
class LedgerTable {
  public:
    using Statement = Connection::Statement;

    /// `identity` is the source's and outlives the ledger.
    LedgerTable(const Table& table, Identity& identity, std::string tenants,
                std::string default_tenant);

    /// Prepares what is written for each batch; once for each connection.
    Status prepare(Connection& connection) const;

    /// See `spi::Recorder::begin`. To be called inside a transaction that is fenced before it ends.
    Result<spi::Beginning> begin(Connection& connection, std::span<const spi::RouteName> routes);

    /// These are finished; `routes` gives the routes' names.
    void add(std::span<const std::string> routes, std::span<const spi::Finished> finished,
             std::vector<Statement>& out) const;
    /// These leave the ledgers of all routes.
    void subtract(std::span<const spi::Position> positions, std::vector<Statement>& out) const;
    /// All segments that lie wholly below `lowest`.
    [[nodiscard]] Statement forget_below(spi::Position lowest) const;
    /// Of a table that keeps its rows: nothing at or below `to` is still to come to the route.
    /// `was` as `spi::SavedStats::settled_before`.
    [[nodiscard]] Statement settled(const std::string& route, spi::Position to,
                                    spi::Position was) const;
    [[nodiscard]] Statement destination(const std::string& route, std::string_view name) const;
    [[nodiscard]] Statement destinations() const;

  private:
    struct Known {
        std::string name;
        std::string destination;
        std::int64_t since_us = 0;
        spi::Position settled = 0;
    };
    Result<std::vector<Known>> load_routes(Connection& connection) const;
    Status check_life(Connection& connection, spi::Beginning& out) const;
    Status check_life_of_ids(Connection& connection, spi::Beginning& out) const;
    Status set_aside_ids(Connection& connection) const;
    Status note_life(Connection& connection) const;
    Result<std::vector<relay::HeldRoute>> held_routes(Connection& connection) const;
    Status take_over_tenants(Connection& connection, spi::Beginning& out) const;
    Status end_former_lease(Connection& connection, const std::string& former) const;
    Status take_over_dead(Connection& connection, const std::string& former,
                          const std::vector<std::string>& ours, std::int64_t& count) const;
    Status inherit_routes(Connection& connection, const std::string& former) const;
    Status take_over_ledgers(Connection& connection, const std::string& former) const;
    Status refuse_open_events(Connection& connection, const std::string& former) const;
    Status take_over_names(Connection& connection, std::span<const spi::RouteName> routes,
                           spi::Beginning& out) const;
    Status rename(Connection& connection, const std::string& from, const std::string& to) const;
    Result<bool> has_unfinished(Connection& connection, const std::string& route) const;
    Status check_layout(Connection& connection) const;
    Status refuse_gone(Connection& connection, std::span<const spi::RouteName> routes,
                       const std::vector<relay::HeldRoute>& held) const;
    Status forget_gone(Connection& connection, std::span<const spi::RouteName> routes,
                       spi::Beginning& out) const;
    Status take_filters(Connection& connection, std::span<const spi::RouteName> routes) const;
    Status take_back_passed(Connection& connection, const std::string& route, bool all) const;
    Status begin_anew(Connection& connection) const;
    [[nodiscard]] static spi::Position settled_by_all(const std::vector<Known>& routes);
    Status part_lives(Connection& connection) const;
    Status name_producers(Connection& connection, std::span<const spi::RouteName> routes,
                          spi::Beginning& out) const;
    Status add_new(Connection& connection, std::span<const spi::RouteName> routes) const;
    Status owe_marks(Connection& connection, std::span<const spi::RouteName> routes) const;
    Status load(Connection& connection, std::span<const spi::RouteName> routes,
                spi::Beginning& out) const;

    const Table table_;
    Identity& identity_;
    const std::string tenants_;  // a condition, for rows t
    const std::string default_tenant_;
};

/// Tables whose rows name a route, all of which a renamed one takes along.
[[nodiscard]] std::span<const char* const> tables_of_routes();

}  // namespace outbox::postgres
