#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/limits.h>
#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "claim/object_store.h"
#include "consumer/operator_sql.h"
#include "core/defaults.h"
#include "core/event_trace.h"
#include "core/operations.h"
#include "core/table_layout.h"
#include "core/table_mapping.h"
#include "core/tls_use.h"
#include "mailbox/writer.h"
#include "webhook/store.h"

namespace outbox::replay {
class History;
}

namespace outbox {

/// Where events are read.
struct SourceConfig {
    std::string url;
    std::string table = kEventTable;
    TableMapping mapping;
    AfterPublish after_publish = AfterPublish::kDefault;
    std::string mode = "auto";         ///< "auto", "stream" or "polling".
    std::vector<std::string> owners;   ///< Roles that may own our tables.
    std::vector<std::string> tenants;  ///< Empty: all.
    std::string default_tenant = kDefaultTenant;
    bool default_tenant_given = false;  ///< Else the relays of the table may have another.
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    bool require_tls = false;
    bool make_side_tables = false;  ///< Only a relay does; who looks changes nothing.
};

enum class RoleKind : std::uint8_t { kWriter, kRelay, kConsumer, kOperator };

/// A role, for which `outbox roles` prints rights.
struct DatabaseRole {
    RoleKind kind = RoleKind::kWriter;
    std::string name;
    std::string_view purpose;  ///< In a comment: "writes events".
};

struct RolesConfig {
    std::vector<DatabaseRole> roles;
    std::string side = {};     ///< "producer", "consumer"; empty: both.
    std::string schema = {};   ///< Of the tables; empty: the database's usual one.
    std::string adopted = {};  ///< Outbox table of its owner's; empty: the one of `migrate`.
};

/// What a folder of databases/ exports, as `const Database& NAME_database()`. All of its functions
/// block up to the connect timeout. The build collects them.
struct Database {
    std::string_view name;                      ///< The folder's.
    std::span<const std::string_view> schemes;  ///< Of its URLs.
    std::string_view urls;                      ///< As the help shows them: "sqlite:///path".

    Result<std::unique_ptr<spi::Source>> (*make_source)(const SourceConfig& config) = nullptr;
    /// What operators do with the outbox `table` (the source's `table_name`).
    Result<std::unique_ptr<Operations>> (*open_operations)(const SourceConfig& config,
                                                           const std::string& table) = nullptr;
    /// Reads the life of events of the outbox table. Null: it cannot.
    Result<std::unique_ptr<EventTracer>> (*open_tracer)(const SourceConfig& config) = nullptr;
    /// What the outbox table knows of events that are done with. Null: nothing.
    Result<std::unique_ptr<replay::History>> (*open_history)(const SourceConfig& config) = nullptr;
    /// A connection for operators to a consumer's tables, which must belong to the current role, a
    /// superuser, the owner of database or schema, or one whom `trust` names.
    Result<std::unique_ptr<consumer::Sql>> (*open_sql)(const std::string& url,
                                                       std::chrono::seconds connect_timeout,
                                                       const consumer::Trust& trust) = nullptr;
    /// Runs one statement as it stands, by a connection of its own.
    Status (*run_statement)(const std::string& url, std::chrono::seconds connect_timeout,
                            const std::string& sql) = nullptr;
    /// Writes into a mailbox of the database. Does not connect yet. Null: it holds none.
    Result<std::unique_ptr<mailbox::Client>> (*open_mailbox)(const mailbox::MailboxConfig& config) =
        nullptr;
    /// Where a route writes webhooks, and where they are sent from. Do not connect yet. Null: it
    /// holds none.
    Result<std::unique_ptr<webhook::Inlet>> (*open_webhook_inlet)(
        const webhook::StoreConfig& config) = nullptr;
    Result<std::unique_ptr<webhook::Outlet>> (*open_webhook_outlet)(
        const webhook::StoreConfig& config) = nullptr;
    /// Its table outbox_objects as an object store. Does not connect yet. Null: it has none.
    Result<std::unique_ptr<claim::ObjectStore>> (*open_objects)(const std::string& url) = nullptr;
    /// The SQL with which the owner of the tables gives roles what they need, and no more. Contacts
    /// nobody. Null: it has no roles.
    std::string (*roles_sql)(const RolesConfig& config) = nullptr;
    /// The URL with what a user says beside it, as parameters that every connection takes from it;
    /// empty: he does not. Null: it has neither passwords nor schemas. Errors: kConfigInvalid where
    /// the URL says another schema.
    Result<std::string> (*add_access)(const std::string& url, const std::string& password_file,
                                      const std::string& schema) = nullptr;
    /// What of the way there is in clear or unverified, with the remedy; or "". Null: it is a file.
    std::string (*weakness)(const std::string& url) = nullptr;
    /// Whose certificates the way there depends on. Contacts nobody. Null: it is a file.
    TlsUse (*tls)(const std::string& url) = nullptr;
};

}  // namespace outbox
