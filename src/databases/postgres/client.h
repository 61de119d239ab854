#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/hosts.h"
#include "databases/postgres/rows.h"
#include "databases/postgres/timelines.h"

struct pg_conn;

namespace outbox::postgres {

/// One of libpq's connection parameters.
struct Setting {
    const char* name;
    const char* value;
};

/// How long the server is waited for.
struct Patience {
    std::chrono::milliseconds most{-1};  ///< For one result; negative: without end.
    int descriptor = -1;                 ///< No longer than until it can be read.
    std::stop_token stop = {};           ///< Or this is asked for, which is looked at now and then.
};

/// A session's commits outlive a crash of the server, and a failover to a synchronous standby where
/// there is one, whatever the database's or the role's default.
inline constexpr const char* kDurable =
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) "
    "WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local')";

/// Why libpq cannot read a URL; empty where it can. Holds nothing of the URL.
[[nodiscard]] std::string url_fault(const std::string& url);

/// A connection of ours, whoever it is for: how it is made, waited for and given up. What a session
/// is like, and what to do about an error, stands above: `Connection` is the relay's,
/// `LibpqSession` a consumer's. A caller's own connection is none of these: the functions of
/// `statement.h` take it as it is. Not thread-safe.
class Client {
  public:
    /// Connects, with `defaults` where the URL says nothing else and with `fixed` whatever it says,
    /// and waits up to `timeout` for it, which several hosts of the URL share. An old primary is
    /// passed over. A session that is not this connection's alone, as a pooler gives each
    /// transaction another, is `kUnsupported`: what is set for ours would reach those of others. An
    /// error: nothing is open, as there was no other (`meet`), or for a reason of ours. Else it is
    /// `sound`, or `in_time` and `message` say why not.
    Status connect(const std::string& url, std::chrono::seconds timeout,
                   std::span<const Setting> defaults, std::span<const Setting> fixed = {});
    void close();
    /// Its server is not the one that is meant: another host of the URL is to be asked first for a
    /// while.
    void refuse() const {
        if (host_) note_refused(*host_);
    }

    /// The server turned out to be this one. An old primary: as `postgres::meet`, and refused.
    Status meet(std::string system_id, std::int64_t timeline);
    /// It was connected to, and may have been lost since.
    [[nodiscard]] bool was_open() const { return was_open_; }
    /// Since it was connected a later primary in the place of its server was met.
    [[nodiscard]] bool replaced() const { return is_replaced(primary_); }

    /// What is sent waits for no room: the rest goes while the answer is waited for. Not where
    /// others call libpq, too.
    void send_without_waiting();
    void limit_waits(Patience patience) { patience_ = std::move(patience); }
    [[nodiscard]] const Patience& patience() const { return patience_; }

    /// Connected, and not known to be of no use.
    [[nodiscard]] bool sound() const;
    /// The server gave an answer when it was connected to.
    [[nodiscard]] bool in_time() const { return in_time_; }
    /// A wait was over before something came: it is of no use any more.
    [[nodiscard]] bool silent() const { return silent_; }
    /// The server asked for a password, and there was none.
    [[nodiscard]] bool lacks_password() const;
    /// libpq's last error. Of a refused connection it tells the state (`sqlstate_in`).
    [[nodiscard]] std::string message() const;
    [[nodiscard]] std::string user() const;
    [[nodiscard]] std::string database() const;
    [[nodiscard]] std::string host() const;  ///< "host:port" or "folder:port".
    [[nodiscard]] pg_conn* handle() const { return handle_.get(); }

    /// Runs SQL without parameters, several statements allowed: the last one's result, or that of
    /// the one that failed. Null: it could not be sent, or the server was silent.
    Rows answer_to(const char* sql);
    /// The same of what was sent, if it was. The beginning of a COPY counts as a result.
    Rows collect(bool sent);
    /// Null behind the last one, and when the server was silent.
    Rows next_result();
    /// Sends what is left to be sent, or takes in what has come, after a wait for either. False:
    /// the server was silent, or the connection broke, which the next result tells.
    bool hear();

  private:
    struct Finish {
        void operator()(pg_conn* connection) const;
    };
    using Handle = std::unique_ptr<pg_conn, Finish>;
    using Time = std::chrono::steady_clock::time_point;

    /// Names and values of connection parameters, as libpq takes them.
    struct Target {
        std::vector<const char*> names = {};
        std::vector<const char*> values = {};
        void add(const char* name, const char* value) {
            names.push_back(name);
            values.push_back(value);
        }
    };
    Status reach(const Target& target, Time deadline);
    Status look(const Target& target, Time deadline);
    [[nodiscard]] bool is_shared(const Target& target);
    static Handle begin(const char* const* names, const char* const* values);
    [[nodiscard]] Time end_of_wait() const;
    [[nodiscard]] int milliseconds_to(Time end) const;
    bool hear_until(Time end);

    Handle handle_;
    std::optional<Host> host_;  // of several
    Primary primary_;
    bool was_open_ = false;
    Patience patience_;
    bool in_time_ = true;
    bool silent_ = false;
};

}  // namespace outbox::postgres
