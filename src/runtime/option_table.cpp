#include "runtime/option_table.h"

#include <array>

#include <outbox/limits.h>

#include "backend/backends.h"
#include "codec/formats.h"
#include "core/defaults.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kConnectTimeout = "5";
static_assert(kConnectTimeoutS == 5);

constexpr std::uint64_t kDead =
    kDeadList | kDeadShow | kDeadRetry | kDeadDiscard | kDeadEdit | kDeadExport;
// Those that send what was sent before, as the relay does.
constexpr std::uint64_t kSendAgain = kReplay | kReplayResume;
constexpr std::uint64_t kReplays = kSendAgain | kReplayList | kReplayCancel;
// What concerns a relay, who runs it or looks whether it could.
constexpr std::uint64_t kServe = kRelay | kDoctor;
constexpr std::uint64_t kDeliver = kServe | kSendAgain;
constexpr std::uint64_t kManyDead = kDeadList | kDeadRetry | kDeadDiscard | kDeadExport;
constexpr std::uint64_t kScheduled = kScheduledList | kScheduledCancel;
constexpr std::uint64_t kRoutes =
    kRoutesList | kRoutesAccept | kRoutesRename | kRoutesRetire | kRoutesContinue | kRoutesBegin;
constexpr std::uint64_t kChangeTenants = kTenantPause | kTenantDrain | kTenantResume;
constexpr std::uint64_t kTenants = kChangeTenants | kTenantList;
constexpr std::uint64_t kOperate =
    kStatus | kTop | kExplain | kDead | kScheduled | kPrune | kRoutes | kTenants;
constexpr std::uint64_t kManySagas = kSagaList | kSagaResume | kSagaAbort;
constexpr std::uint64_t kSaga = kManySagas | kSagaShow;
constexpr std::uint64_t kWebhook = kWebhookAdd | kWebhookList | kWebhookTest | kWebhookRotate |
                                   kWebhookDisable | kWebhookEnable | kWebhookDelete;
constexpr std::uint64_t kAll =
    kServe | kMigrate | kRoles | kOperate | kDashboard | kReplays | kSaga | kWebhook | kVerify;

constexpr std::string_view kSourceGroup = "Source";
constexpr std::string_view kRouteGroup = "Destination";
constexpr std::string_view kDeliveryGroup = "Delivery";
constexpr std::string_view kDaemonGroup = "Running";
constexpr std::string_view kFilterGroup = "Selection";
constexpr std::string_view kEditGroup = "Change";
constexpr std::string_view kReplayGroup = "Replay";
constexpr std::string_view kTenantGroup = "Tenants";
constexpr std::string_view kLookingGroup = "Looking";
constexpr std::string_view kWebhookGroup = "Webhooks";
constexpr std::string_view kGeneralGroup = "General";

constexpr std::array kCommands{
    CommandSpec{kRelay, "relay", "carry committed events to their destinations",
                "Reads committed events from the outbox table and publishes them, in order of "
                "their keys, until it is told to stop (SIGTERM or Ctrl-C).",
                "",
                "outbox relay --from postgresql://app@localhost/shop --to kafka://localhost:9092\n"
                "outbox relay --from sqlite:///var/lib/shop.db --to stdout:\n"
                "outbox relay --from sqlite:///var/lib/shop.db --to orders=kafka://localhost:9092 "
                "--to all=stdout:\n"
                "outbox relay --check --config /etc/outbox.toml"},
    CommandSpec{kMigrate, "migrate", "create or upgrade the outbox's tables",
                "Creates and upgrades the tables, views and functions of producer and consumer. "
                "Running it again changes nothing.",
                "",
                "outbox migrate --db postgresql://app@localhost/shop\n"
                "outbox migrate --db postgresql://app@localhost/shop --print\n"
                "outbox migrate --db sqlite:///var/lib/shop.db --only consumer\n"
                "outbox migrate --db postgresql://app@localhost/shop --uninstall --print"},
    CommandSpec{kRoles, "roles", "print the rights that each role needs",
                "Prints the GRANTs for PostgreSQL with which writers, the relay, consumers and "
                "operators have what they need and no more. It changes nothing and connects "
                "nowhere. Without a role all four are printed, under names of their own.",
                "",
                "outbox roles --print\n"
                "outbox roles --print --writer app --relay relay --operator oncall\n"
                "outbox roles --print --consumer billing --only consumer"},
    CommandSpec{kStatus, "status", "show backlog, owner and routes",
                "Shows what waits, who relays and how each route fares, from the database alone: "
                "no relay needs to run.",
                "",
                "outbox status --db postgresql://app@localhost/shop\n"
                "outbox status --db sqlite:///var/lib/shop.db --json"},
    CommandSpec{
        kTop, "top", "watch rates, backlog, routes and failing keys",
        "Shows again and again what waits, who leads, how fast each route is, its circuit and "
        "last error, and the keys that have failed for longest, from the database alone: no relay "
        "needs to run. On a terminal it is a live screen; q leaves it. Elsewhere it prints a line "
        "of fields for each route and look, with --json a line of JSON for each look. A database "
        "that goes away is waited for, with the last figures and their age. A look that takes long "
        "is followed by a rest four times as long.",
        "",
        "outbox top --db postgresql://app@localhost/shop\n"
        "outbox top --db sqlite:///var/lib/shop.db --once\n"
        "outbox top --db postgresql://app@localhost/shop --json --interval 10s --count 6"},
    CommandSpec{
        kDoctor, "doctor", "look whether a relay could run, and what it could not keep",
        "Looks at the source, the ledgers, every destination and the consumers' databases "
        "with the options of `outbox relay`, and says of each thing whether it is right and "
        "what mends it. Only --fix changes something. Exit code 1 where a relay could not run; "
        "warnings are not counted. For a deploy pipeline, before the relay is replaced.",
        "",
        "outbox doctor --from postgresql://relay@localhost/shop --to "
        "kafka://localhost:9092\n"
        "outbox doctor --config /etc/outbox.toml --consumer-db "
        "postgresql://billing@localhost/billing --json\n"
        "outbox doctor --config /etc/outbox.toml --fix --dry-run | psql "
        "postgresql://owner@localhost/shop"},
    CommandSpec{
        kExplain, "explain", "tell the life of one event, and why it waits",
        "Tells what the database knows of an event: when it was written, what each route has done "
        "with it, what operators did, and with --consumer-db what became of it there. Of one that "
        "is not sent yet it says why it waits: behind which event of its key, a destination that "
        "is down, a relay that does not run. Of an id that nobody knows it says what that can "
        "mean. With --key: what is not finished of a key, and why the first of it waits. No relay "
        "needs to run, and nothing is changed; where no index has ids or keys the table is read. "
        "Exit code 1 where nobody knows the id or the key.",
        "[ID]",
        "outbox explain 01939d3e-7c00-7aaa-8000-000000000001 "
        "--db postgresql://app@localhost/shop\n"
        "outbox explain --key o-1 --db sqlite:///var/lib/shop.db --json\n"
        "outbox explain 01939d3e-7c00-7aaa-8000-000000000001 --db sqlite:///shop.db "
        "--consumer-db sqlite:///b.db"},
    CommandSpec{
        kWait, "wait", "wait until a consumer has applied the events of a fence token",
        "Looks into the inbox of a consumer, in its database, until every event of the token is "
        "applied there, one is given up on, or --timeout is over. What is applied is committed and "
        "seen by whoever reads that database from then on. It asks for consumers that keep ids in "
        "outbox_inbox: mailboxes, queues, Kafka in the modes with an inbox, inbox_accept. Exit "
        "code 0: applied; 6: not in time; 7: a dead letter; 8: forgotten; 2: no token. "
        "Services make the same look by the SQL function outbox_wait, or look_for in C++.",
        "TOKEN",
        "outbox wait obf1.AAAAAQ --consumer stock --consumer-db "
        "postgresql://app@localhost/inventory\n"
        "outbox wait obf1.AAAAAQ --consumer stock --consumer-db sqlite:///inventory.db "
        "--timeout 0s --json"},
    CommandSpec{
        kDashboard, "dashboard", "serve a page that shows it all",
        "Serves a page for a browser: flow, backlog and rates as they change, routes with their "
        "last error, keys that are held up, dead letters to be read, retried and discarded, sagas, "
        "consumers, relays, and who did what. It works from the databases alone; no relay needs to "
        "run. Nothing can be changed without the token of --admin-token-file, and what is changed "
        "is written into outbox_audit with a name and a reason. Runs until SIGTERM or Ctrl-C.",
        "",
        "outbox dashboard --from postgresql://oncall@localhost/shop\n"
        "outbox dashboard --from sqlite:///var/lib/shop.db --admin-token-file token\n"
        "outbox dashboard --from sqlite:///shop.db --consumer-db sqlite:///billing.db --listen "
        "127.0.0.1:8080"},
    CommandSpec{
        kReplay, "replay", "send events of the past once more",
        "Sends events again that a route has published, from a table that keeps its rows, or dead "
        "letters: with the options of `outbox relay`, in the order of each key, at a pace that "
        "leaves live events their way, and marked by the header outbox-replay. It says first what "
        "it would send. A run is remembered in outbox_replays: after a kill `replay resume` goes "
        "on with it, `replay cancel` ends it. Consumers with an inbox drop what they have applied. "
        "Exit code 1 where nothing matches, an event was refused or the run was not finished; 4 "
        "where the table keeps no history.",
        "",
        "outbox replay --config /etc/outbox.toml --route billing --since 2h --dry-run\n"
        "outbox replay --config /etc/outbox.toml --route billing --key o-1 --reason 'o-1 is "
        "wrong'\n"
        "outbox replay --from sqlite:///shop.db --to audit=kafka://audit:9092 --route kafka "
        "--as-new "
        "--reason audit"},
    CommandSpec{kReplayList, "replay list", "list replays, running ones first",
                "Lists the runs of `outbox replay` with how far each is, who runs it and why.", "",
                "outbox replay list --from postgresql://oncall@localhost/shop\n"
                "outbox replay list --from sqlite:///var/lib/shop.db --json"},
    CommandSpec{kReplayResume, "replay resume", "go on with a replay",
                "Goes on behind the last event that is written down as sent, with the options of "
                "`outbox replay`; what was under way is sent once more. What the run sends, its "
                "pace and its reason stay. Where its runner was killed it waits until that can be "
                "told.",
                "RUN",
                "outbox replay resume 0b6dff1c-6d6c-4f6e-9d3e-0a4a5a0f2d11 --config "
                "/etc/outbox.toml"},
    CommandSpec{kReplayCancel, "replay cancel", "end a replay before it is over",
                "The runner finds it within a second, and ends; what it has sent stays sent.",
                "RUN",
                "outbox replay cancel 0b6dff1c-6d6c-4f6e-9d3e-0a4a5a0f2d11 --reason 'wrong key'"},
    CommandSpec{kDeadList, "dead list", "list dead letters",
                "Lists events given up on, oldest first.", "",
                "outbox dead list --db postgresql://app@localhost/shop --route billing\n"
                "outbox dead list --db postgresql://app@localhost/shop --json --limit 1000"},
    CommandSpec{kDeadShow, "dead show", "show one dead letter whole",
                "Shows every field of the dead letters of an event id, the payload included.",
                "[ID...]",
                "outbox dead show 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kDeadRetry, "dead retry", "have dead letters delivered again",
                "Asks the relay to deliver dead letters once more. A retried event comes after "
                "later events of its key.",
                "[ID...]",
                "outbox dead retry 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop\n"
                "outbox dead retry --route old --to billing --db postgresql://app@localhost/shop\n"
                "outbox dead retry --event-type OrderCreated --dry-run "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kDeadDiscard, "dead discard", "delete dead letters for good",
                "Deletes dead letters. They are never delivered. "
                "One that is being retried may be on its way, and is left.",
                "[ID...]",
                "outbox dead discard 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop\n"
                "outbox dead discard --error-code OB_TOPIC_INVALID --dry-run "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{
        kDeadEdit, "dead edit", "change a dead letter before it is retried",
        "Changes payload, topic, key or headers of the dead letter of an event; the event's "
        "row is gone by then. Give --route where the event is dead in several. A header that the "
        "destination never carries is refused, where the configuration, or the route's name "
        "(webhook), says which destination it is.",
        "ID",
        "outbox dead edit 01939d3e-7c00-7aaa-8000-000000000001 --topic orders "
        "--db postgresql://app@localhost/shop"},
    CommandSpec{kDeadExport, "dead export", "write dead letters out whole",
                "Writes every field of dead letters as JSON, one on each line, oldest first; a "
                "payload that is no UTF-8 as payload_base64.",
                "[ID...]",
                "outbox dead export --route billing --db postgresql://app@localhost/shop"},
    CommandSpec{kScheduledList, "scheduled list", "list delayed events",
                "Lists events that are not due yet, the next first.", "[ID...]",
                "outbox scheduled list --db postgresql://app@localhost/shop\n"
                "outbox scheduled list --event-type Reminder --json "
                "--db sqlite:///var/lib/shop.db"},
    CommandSpec{kScheduledCancel, "scheduled cancel", "delete delayed events before they are due",
                "Deletes delayed events. One that is due is on its way and no longer here.",
                "[ID...]",
                "outbox scheduled cancel 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop\n"
                "outbox scheduled cancel --key o-1 --dry-run --db postgresql://app@localhost/shop"},
    CommandSpec{kRoutesList, "routes list", "list the routes that the ledger knows",
                "Lists the routes of the table with what their destinations call themselves and "
                "what each has not finished. What a route has finished holds for its name and that "
                "destination.",
                "",
                "outbox routes list --db postgresql://app@localhost/shop\n"
                "outbox routes list --db sqlite:///var/lib/shop.db --json"},
    CommandSpec{kRoutesAccept, "routes accept", "let a route go on at another destination",
                "What the route leads to next is taken for the destination that it had: what it "
                "has finished is not sent there again. A running relay takes it over within a "
                "second or so. Where relays serve some tenants each, --tenant says whose route.",
                "NAME",
                "outbox routes accept billing --db postgresql://app@localhost/shop\n"
                "outbox routes accept billing --tenant acme --db postgresql://app@localhost/shop"},
    CommandSpec{kRoutesRename, "routes rename", "give a route another name",
                "What the route has finished, its failing events, dead letters and figures go to "
                "the new name. No relay of the table may run that serves some of the same tenants; "
                "where relays serve some each, --tenant says whose route.",
                "OLD NEW",
                "outbox routes rename kafka billing --db postgresql://app@localhost/shop"},
    CommandSpec{kRoutesRetire, "routes retire", "forget a route that is gone",
                "Forgets a route and what it had finished; events that only it had not finished "
                "are finished by that. Its dead letters stay. No relay of the table may run that "
                "serves some of the same tenants; where relays serve some each, --tenant says "
                "whose route.",
                "NAME",
                "outbox routes retire billing --db postgresql://app@localhost/shop\n"
                "outbox routes retire billing --yes --db postgresql://app@localhost/shop"},
    CommandSpec{kRoutesContinue, "routes continue", "the table holds the events it held before",
                "For a table that was restored from a dump or copied: what its routes had finished "
                "holds for the events that it has now, whatever tenants they are of. No relay of "
                "the table may run.",
                "", "outbox routes continue --db postgresql://app@localhost/shop"},
    CommandSpec{kRoutesBegin, "routes begin", "the table holds other events than before",
                "For a table that was replaced or begun anew: forgets what its routes had "
                "finished, whatever tenants they are of, so that everything that it holds is sent. "
                "No relay of the table may run.",
                "", "outbox routes begin --db postgresql://app@localhost/shop"},
    CommandSpec{kTenantList, "tenant list", "list the tenants that are paused",
                "Lists tenants of which nothing is sent, with what is kept of each, since when, by "
                "whom and why.",
                "",
                "outbox tenant list --db postgresql://app@localhost/shop\n"
                "outbox tenant list --db sqlite:///var/lib/shop.db --json"},
    CommandSpec{kTenantPause, "tenant pause", "send nothing of a tenant for now",
                "Keeps a tenant's events instead of sending them, those of before, too. A running "
                "relay follows within a second or two, one that begins knows it; what the "
                "destination has been handed by then is not taken back. Other tenants go on.",
                "TENANT",
                "outbox tenant pause acme --reason 'their topic is being rebuilt' "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kTenantDrain, "tenant drain", "pause a tenant once all of it is sent",
                "Waits until every route has finished every event of the tenant that is committed, "
                "and pauses it then: what is committed later is kept. Stop its writers before. It "
                "says what is left as it waits; where it is stopped or the time is over, nothing "
                "was changed. Exit code 6: not in time.",
                "TENANT",
                "outbox tenant drain acme --reason 'moves to another database' "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kTenantResume, "tenant resume", "send a tenant's events again",
                "What was kept of the tenant is sent, in the order of its keys.", "TENANT",
                "outbox tenant resume acme --reason 'the topic is there' "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{
        kPrune, "prune", "remove old published rows, forgotten ids and expired keys",
        "Removes rows that were published longer ago than the retention, in batches of "
        "1,000. It never removes an unsent or a dead row. Where the database has a "
        "consumer's tables: ids of messages from before the inbox's retention, which "
        "raises the floor below which messages are quarantined, expired Idempotency-Keys, and "
        "sagas that finished as long ago.",
        "",
        "outbox prune --db postgresql://app@localhost/shop --table app.outbox "
        "--retention 7d --dry-run"},
    CommandSpec{
        kVerify, "verify", "prove that nothing was lost, repeated or reordered",
        "Compares what producers committed with what consumers received and applied. Both are "
        "journals of JSON lines: id, key, n (rises within a key), and for consumers applied "
        "(false: dropped as a repeat, a fault where nothing of that consumer applied it) "
        "and consumer, and at (a whole number that rises with time) where members of one consumer "
        "keep a journal each: without it, order between two of them is not proved, nor is that of "
        "events with one n, and the last line says of how many keys; a line with "
        "\"state\":\"intent\" says that the event may or may not be "
        "there, \"rolled_back\" that it is not. With --db, an event with a dead letter may be "
        "missing at as many consumers as it has letters, where no route took it at all, and is "
        "not lost: it is listed as excused, for a letter does not say which consumer its route "
        "feeds. The last line begins: lost N.",
        "",
        "outbox verify --produced orders.jsonl --received inventory.jsonl\n"
        "outbox verify --produced a.jsonl b.jsonl --received c.jsonl "
        "--db sqlite:///var/lib/shop.db\n"
        "outbox verify --produced a.jsonl --effect-db sqlite:///stock.db "
        "--effect-query 'SELECT id FROM effects'"},
    CommandSpec{kSagaList, "saga list", "list the sagas that a service leads",
                "Lists sagas, oldest first, with what each waits for and why it does not go on.",
                "",
                "outbox saga list --db postgresql://app@localhost/shop --stuck-for 10m\n"
                "outbox saga list --db postgresql://app@localhost/shop --state stuck --json"},
    CommandSpec{kSagaShow, "saga show", "show one saga whole",
                "Shows every step of a saga, its timer, data and dead letters.", "[ID...]",
                "outbox saga show 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kSagaResume, "saga resume", "have sagas send again what they wait for",
                "Asks the service to send the awaited command or compensation once more, with "
                "fresh retries; one stuck at a step that nothing undoes goes on without it.",
                "[ID...]",
                "outbox saga resume 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop\n"
                "outbox saga resume --state stuck --dry-run --db postgresql://app@localhost/shop"},
    CommandSpec{kSagaAbort, "saga abort", "have sagas turn back",
                "Asks the service to undo what a saga has done, the last step first. One that has "
                "sent a step that cannot be undone only goes forward.",
                "[ID...]",
                "outbox saga abort 01939d3e-7c00-7aaa-8000-000000000001 "
                "--db postgresql://app@localhost/shop\n"
                "outbox saga abort --name order --stuck-for 1h --dry-run "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{
        kWebhookAdd, "webhook add", "let a receiver subscribe to events",
        "Adds an endpoint to the table of endpoints and shows its secret, once: with it (v1), or "
        "with the public key that is shown instead (v1a), the receiver verifies what is sent. What "
        "is stored is encrypted with the key file.",
        "URL",
        "outbox webhook add https://shop.example/h --events 'order.*' "
        "--key-file webhook.key --db sqlite:///shop.db\n"
        "outbox webhook add https://a.example/h --id shop-7 --type v1a "
        "--key-file webhook.key --db sqlite:///shop.db"},
    CommandSpec{kWebhookList, "webhook list", "list the endpoints of webhooks",
                "Lists endpoints, oldest first, with what waits for each, what was given up on, "
                "and what went wrong last. Secrets are not shown.",
                "",
                "outbox webhook list --db postgresql://app@localhost/shop\n"
                "outbox webhook list --json --db sqlite:///var/lib/shop.db"},
    CommandSpec{kWebhookTest, "webhook test", "send an endpoint one event now",
                "Sends one signed event of the type outbox.test, whatever the endpoint's filter "
                "and state are, and shows the answer. Nothing is written. Exit code 1 where the "
                "answer is not 2xx.",
                "ID",
                "outbox webhook test shop-7 --key-file webhook.key "
                "--db postgresql://app@localhost/shop\n"
                "outbox webhook test dev --allow 127.0.0.1 --allow-http "
                "--key-file webhook.key --db sqlite:///shop.db"},
    CommandSpec{kWebhookRotate, "webhook rotate", "give an endpoint a new secret",
                "Gives an endpoint a new secret and shows it, once. The former one signs beside it "
                "until the overlap is over, so that the receiver can change at any moment between.",
                "ID",
                "outbox webhook rotate shop-7 --key-file webhook.key "
                "--db postgresql://app@localhost/shop\n"
                "outbox webhook rotate shop-7 --overlap 0s --key-file webhook.key "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kWebhookDisable, "webhook disable", "send an endpoint nothing for now",
                "Ends deliveries to an endpoint. What waits for it stays, and so do events that "
                "come meanwhile, up to the limit of a queue (100,000).",
                "ID",
                "outbox webhook disable shop-7 --reason 'asked by the customer' "
                "--db postgresql://app@localhost/shop"},
    CommandSpec{kWebhookEnable, "webhook enable", "deliver to an endpoint again",
                "Begins deliveries to an endpoint again, with all that waited for it or was given "
                "up on, at once and with fresh attempts.",
                "ID", "outbox webhook enable shop-7 --db postgresql://app@localhost/shop"},
    CommandSpec{kWebhookDelete, "webhook delete", "remove an endpoint for good",
                "Removes an endpoint with its secrets and all that was to be delivered to it. "
                "Without --yes only where that is nothing.",
                "ID",
                "outbox webhook delete shop-7 --db postgresql://app@localhost/shop\n"
                "outbox webhook delete shop-7 --yes --db postgresql://app@localhost/shop"},
    CommandSpec{
        kSinks, "sinks", "list the destinations and what each promises",
        "Lists every kind of destination that this build has: what it promises of an event, "
        "how the order of a key is kept, which repeats it drops by itself, its limits, and the "
        "options that its URL and its table in the configuration file take. "
        "With --json as a machine reads it.",
        "", "outbox sinks\noutbox sinks --json"},
    CommandSpec{
        kImportDebezium, "import debezium", "make an outbox.toml of Debezium's options",
        "Reads an application.properties of Debezium Server, or a connector of Kafka Connect as "
        "properties or JSON, and prints the outbox.toml with which the relay writes the same "
        "records. Each line that it cannot carry over is named on stderr, with what to do.",
        "FILE", "outbox import debezium application.properties > outbox.toml"},
    CommandSpec{kVersion, "version", "print the version", "Prints the version.", "",
                "outbox version"},
};

constexpr std::array kOptions{
    // Source
    OptionSpec{.name = "from",
               .type = OptionType::kUrl,
               .file_key = "source.url",
               .value = "URL",
               .commands = kServe | kDashboard | kReplays,
               .group = kSourceGroup,
               .help = "database to read events from: {databases}"},
    OptionSpec{.name = "db",
               .type = OptionType::kUrl,
               .file_key = "source.url",
               .value = "URL",
               .commands = kMigrate | kOperate | kSaga | kWebhook | kVerify,
               .group = kSourceGroup,
               .help = "database: {databases}"},
    OptionSpec{.name = "owner",
               .type = OptionType::kText,
               .file_key = "source.owner",
               .value = "ROLE",
               .repeatable = true,
               .commands = kServe | kMigrate | kOperate | kDashboard | kReplays | kSaga | kWebhook |
                           kVerify | kWait,
               .group = kSourceGroup,
               .help = "PostgreSQL: role that may own the outbox's tables, besides the current "
                       "one and superusers (migrate) and the owners of database and schema (the "
                       "others); may be repeated"},
    OptionSpec{.name = "password-file",
               .type = OptionType::kPath,
               .file_key = "source.password_file",
               .value = "FILE",
               .commands = kServe | kMigrate | kOperate | kDashboard | kReplays | kSaga | kWebhook |
                           kVerify | kWait,
               .group = kSourceGroup,
               .help = "PostgreSQL: file with the password, read anew at each connection; refused "
                       "where other users may read it. For a mailbox: ?password_file=FILE in its "
                       "URL"},
    OptionSpec{.name = "schema",
               .type = OptionType::kText,
               .file_key = "source.schema",
               .value = "NAME",
               .commands = kServe | kMigrate | kRoles | kOperate | kDashboard | kReplays | kSaga |
                           kWebhook | kVerify | kWait,
               .group = kSourceGroup,
               .help = "PostgreSQL: schema of the outbox's tables, exact and case kept; without it "
                       "the first of the role's search_path"},
    OptionSpec{.name = "require-tls",
               .type = OptionType::kFlag,
               .file_key = "require_tls",
               .commands = kServe | kMigrate | kOperate | kDashboard | kReplays | kSaga | kWebhook |
                           kVerify | kWait,
               .group = kSourceGroup,
               .help = "refuse to reach another machine in clear or without proof who it is: "
                       "PostgreSQL wants sslmode=verify-full, Kafka ssl or sasl_ssl"},
    OptionSpec{.name = "table",
               .type = OptionType::kText,
               .file_key = "source.table.name",
               .fallback = kEventTable,
               .value = "NAME",
               .commands = kServe | kRoles | kOperate | kDashboard | kReplays | kVerify,
               .group = kSourceGroup,
               .help = "outbox table, exact and case kept: table or schema.table"},
    OptionSpec{.name = "preset",
               .type = OptionType::kChoice,
               .file_key = "source.table.preset",
               .choices = "pending-published|new-sent|processed-at|delete-when-sent|camel-case|"
                          "debezium",
               .value = "NAME",
               .commands = kServe | kOperate | kDashboard | kReplays | kVerify,
               .group = kSourceGroup,
               .help = "known shape of the table; without it the shape is recognised by its "
                       "columns"},
    OptionSpec{.name = "after-publish",
               .type = OptionType::kChoice,
               .file_key = "source.after_publish",
               .choices = "delete|mark|keep",
               .value = "ACTION",
               .commands = kServe | kMigrate | kOperate | kDashboard | kReplays | kVerify,
               .group = kSourceGroup,
               .help = "what happens to a published row; without it `mark` where a column says so, "
                       "`delete` in the table of outbox migrate and in those that are exactly of "
                       "shape delete-when-sent or debezium; for any other table `delete` must be "
                       "written. `migrate` lays its table out for `keep` (PostgreSQL 15 or newer) "
                       "or `delete`, which gives up what was kept; the others follow the table"},
    OptionSpec{.name = "unmatched",
               .type = OptionType::kChoice,
               .file_key = "source.unmatched",
               .fallback = "dead_letter",
               .choices = "dead_letter|finish|stop",
               .value = "ACTION",
               .commands = kServe,
               .group = kSourceGroup,
               .help = "an event that no route takes is a dead letter, is done with, or ends the "
                       "relay before it"},
    OptionSpec{.name = "retention",
               .type = OptionType::kDuration,
               .file_key = "source.retention",
               .fallback = "7d",
               .min = 1,
               .max = 315'360'000,
               .value = "TIME",
               .commands = kServe | kPrune,
               .group = kSourceGroup,
               .help = "how long marked rows are kept after they were published"},
    OptionSpec{.name = "inbox-retention",
               .type = OptionType::kDuration,
               .file_key = "consumer.inbox_retention",
               .fallback = "30d",
               .min = 7'200,
               .max = 315'360'000,
               .value = "TIME",
               .commands = kPrune,
               .group = kSourceGroup,
               .help = "how long a consumer's inbox remembers ids; longer than a message can take "
                       "and be repeated: the broker's retention, the longest delay, the backlog, "
                       "the age of dead letters"},
    OptionSpec{.name = "tenant",
               .type = OptionType::kText,
               .file_key = "source.tenant",
               .value = "ID",
               .repeatable = true,
               .commands = kServe,
               .group = kSourceGroup,
               .help = "relay the events of this tenant only; may be repeated"},
    OptionSpec{.name = "tenant",
               .type = OptionType::kText,
               .file_key = "source.tenant",
               .value = "ID",
               .repeatable = true,
               .may_be_empty = true,
               .commands = kRoutesAccept | kRoutesRename | kRoutesRetire,
               .group = kSourceGroup,
               .help = "the route of the relay of this tenant, as that relay has it; may be "
                       "repeated; '': of the relay of all tenants; without it likewise, where no "
                       "other has a route of the name"},
    OptionSpec{.name = "default-tenant",
               .type = OptionType::kText,
               .file_key = "source.default_tenant",
               .fallback = kDefaultTenant,
               .value = "ID",
               .commands = kServe | kStatus | kDashboard | kSendAgain | kManyDead | kScheduled |
                           kExplain | kRoutesList | kRoutesRetire | kTenants | kTop,
               .group = kSourceGroup,
               .help = "tenant of events that name none"},
    OptionSpec{.name = "mode",
               .type = OptionType::kChoice,
               .file_key = "source.mode",
               .fallback = "auto",
               .choices = "auto|stream|polling",
               .value = "MODE",
               .commands = kServe,
               .group = kSourceGroup,
               .help = "where events come from: stream (PostgreSQL's log, by a temporary slot), "
                       "polling (reads of the table), or auto: polling, from three routes on "
                       "the stream where the server allows it; relay --check says which"},
    OptionSpec{.name = "connect-timeout-s",
               .type = OptionType::kInteger,
               .file_key = "source.connect_timeout_s",
               .fallback = kConnectTimeout,
               .unit = "s",
               .min = 1,
               .max = 300,
               .value = "N",
               .commands = kServe | kMigrate | kOperate | kDashboard | kReplays | kSaga | kWebhook |
                           kVerify | kWait,
               .group = kSourceGroup,
               .help =
                   "longest wait for a connection to the database; once it has begun, and for a "
                   "destination, a relay waits 15 s at most"},
    // Destination
    OptionSpec{.name = "to",
               .type = OptionType::kDestination,
               .file_key = "to",
               .value = "[NAME=]URL",
               .repeatable = true,
               .commands = kDeliver,
               .group = kRouteGroup,
               .help =
                   "where events go: {brokers}; repeated, each makes a route. What a route has "
                   "finished is kept under its NAME; without one it is called by its URL's scheme: "
                   "kafka, mailbox, mailbox-NAME, stdout. For replay: where the events go in place "
                   "of the route's own destination, unless it bears the route's name"},
    OptionSpec{.name = "topic-template",
               .type = OptionType::kText,
               .file_key = "topic_template",
               .fallback = "{aggregate_type|lower}-events",
               .value = "TEXT",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "topic of events that name none; fields: aggregate_type, event_type, "
                       "tenant_id, routing_key, key, each also with |lower; an event without a "
                       "value for one of them goes to the table's name"},
    OptionSpec{.name = "allowed-topic",
               .type = OptionType::kText,
               .file_key = "allowed_topics",
               .value = "NAME",
               .repeatable = true,
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "topic that events may go to, or a prefix ending in *; may be repeated; "
                       "without it every valid name"},
    OptionSpec{.name = "format",
               .type = OptionType::kChoice,
               .file_key = "format",
               .fallback = "raw",
               .choices = "raw|cloudevents|cloudevents-structured|debezium",
               .value = "FORMAT",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "how an event becomes a record; {formats}"},
    OptionSpec{.name = "claim-check",
               .type = OptionType::kUrl,
               .file_key = "claim_check",
               .value = "URL",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "where large payloads are kept, so that records carry a reference: "
                       "file:///folder, s3://bucket/prefix, or a database, for its table "
                       "outbox_objects"},
    OptionSpec{.name = "claim-check-above",
               .type = OptionType::kInteger,
               .file_key = "claim_check_above",
               .fallback = "262144",
               .unit = "bytes",
               .min = 0,
               .max = 1'073'741'824,
               .value = "N",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "largest payload that a record carries itself, where claim-check is set"},
    OptionSpec{.name = "schema-registry",
               .type = OptionType::kUrl,
               .file_key = "schema_registry",
               .value = "URL",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "a schema registry with Confluent's API: payloads of events with a "
                       "schema_id are checked by it before they are published"},
    OptionSpec{.name = "schema-framing",
               .type = OptionType::kChoice,
               .file_key = "schema_framing",
               .fallback = "none",
               .choices = "none|confluent",
               .value = "FRAMING",
               .commands = kDeliver,
               .group = kRouteGroup,
               .help = "what is written before a payload: confluent is a zero byte and the id of "
                       "its schema in four"},
    OptionSpec{.name = "on-dead-letter",
               .type = OptionType::kChoice,
               .file_key = "on_dead_letter",
               .fallback = "continue",
               .choices = "continue|block_key",
               .value = "ACTION",
               .commands = kServe,
               .group = kRouteGroup,
               .help = "after a dead letter the later events of its key go on, or wait"},
    // Delivery
    OptionSpec{.name = "batch-size",
               .type = OptionType::kInteger,
               .file_key = "batch_size",
               .fallback = "500",
               .unit = "events",
               .min = 1,
               .max = 1000,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "most events read at once"},
    OptionSpec{.name = "poll-busy-ms",
               .type = OptionType::kInteger,
               .file_key = "poll_busy_ms",
               .fallback = "1",
               .unit = "ms",
               .min = 1,
               .max = 60'000,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "wait between reads while events come"},
    OptionSpec{.name = "poll-idle-ms",
               .type = OptionType::kInteger,
               .file_key = "poll_idle_ms",
               .fallback = "100",
               .unit = "ms",
               .min = 1,
               .max = 60'000,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "longest wait between reads while none come"},
    OptionSpec{.name = "max-attempts",
               .type = OptionType::kInteger,
               .file_key = "max_attempts",
               .fallback = "5",
               .unit = "attempts",
               .min = 1,
               .max = 1000,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "failed attempts after which an event is a dead letter"},
    OptionSpec{.name = "retry-base-ms",
               .type = OptionType::kInteger,
               .file_key = "retry_base_ms",
               .fallback = "200",
               .unit = "ms",
               .min = 1,
               .max = 3'600'000,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "wait after the first failure; it doubles with each further one"},
    OptionSpec{.name = "retry-max-ms",
               .type = OptionType::kInteger,
               .file_key = "retry_max_ms",
               .fallback = "60000",
               .unit = "ms",
               .min = 1,
               .max = 86'400'000,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "longest wait between attempts"},
    OptionSpec{.name = "max-unrecorded",
               .type = OptionType::kInteger,
               .file_key = "max_unrecorded",
               .fallback = "10000",
               .unit = "events",
               .min = 2,
               .max = 1'000'000,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "most events under way and not yet recorded: the most repeats after a kill"},
    OptionSpec{.name = "tenant-share",
               .type = OptionType::kInteger,
               .file_key = "tenant_share",
               .fallback = "100",
               .unit = "per cent",
               .min = 1,
               .max = 100,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "most of max-unrecorded and max-in-flight-bytes that the events of one "
                       "tenant may have in a route, so that its burst delays no other"},
    OptionSpec{.name = "tenant-rate",
               .type = OptionType::kInteger,
               .file_key = "tenant_rate",
               .fallback = "0",
               .unit = "events/s",
               .min = 0,
               .max = 1'000'000,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "most events of one tenant that a route sends in a second; 0: any"},
    OptionSpec{.name = "max-in-flight-bytes",
               .type = OptionType::kInteger,
               .file_key = "max_in_flight_bytes",
               .fallback = "16777216",
               .unit = "bytes",
               .min = 1'048'576,
               .max = 4'294'967'296,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "most bytes of events held in memory; at the limit reading waits"},
    OptionSpec{.name = "lease-ttl-ms",
               .type = OptionType::kInteger,
               .file_key = "lease_ttl_ms",
               .fallback = "5000",
               .unit = "ms",
               .min = 1000,
               .max = 300'000,
               .value = "N",
               .commands = kServe,
               .group = kDeliveryGroup,
               .help = "time after which a hung relay is replaced"},
    OptionSpec{.name = "shutdown-grace-s",
               .type = OptionType::kInteger,
               .file_key = "shutdown_grace_s",
               .fallback = "30",
               .unit = "s",
               .min = 0,
               .max = 3600,
               .value = "N",
               .commands = kDeliver,
               .group = kDeliveryGroup,
               .help = "time to finish what is under way when told to stop"},
    // Running
    OptionSpec{.name = "check",
               .type = OptionType::kFlag,
               .commands = kRelay,
               .group = kDaemonGroup,
               .help = "look at source and destinations, say what was found, and exit"},
    OptionSpec{.name = "admin",
               .type = OptionType::kText,
               .file_key = "admin",
               .fallback = "auto",
               .value = "HOST:PORT",
               .commands = kRelay,
               .group = kDaemonGroup,
               .help = "address of health and metrics; `auto` is 127.0.0.1:9464 when free, `off` "
                       "is none; an address that is in use is an error"},
    OptionSpec{.name = "listen",
               .type = OptionType::kText,
               .fallback = "127.0.0.1:9465",
               .value = "HOST:PORT",
               .commands = kDashboard,
               .group = kDaemonGroup,
               .help = "address of the page; port 0 is any that is free"},
    OptionSpec{.name = "admin-token-file",
               .type = OptionType::kPath,
               .file_key = "admin_token_file",
               .value = "FILE",
               .commands = kRelay | kDashboard,
               .group = kDaemonGroup,
               .help = "file with the token that changes on the dashboard need (`openssl rand -hex "
                       "32`, mode 0600), read for each; for a relay: serve the dashboard on the "
                       "address of health and metrics, too"},
    OptionSpec{.name = "otlp-endpoint",
               .type = OptionType::kUrl,
               .file_key = "otlp_endpoint",
               .value = "URL",
               .commands = kRelay,
               .group = kDaemonGroup,
               .help = "receiver of OTLP over HTTP, such as http://collector:4318: it gets a span "
                       "outbox.publish for each event whose `traceparent` is sampled"},
    OptionSpec{.name = "log-level",
               .type = OptionType::kChoice,
               .file_key = "log_level",
               .fallback = "info",
               .choices = "debug|info|warn|error",
               .value = "LEVEL",
               .commands = kRelay,
               .group = kDaemonGroup,
               .help = "least important log lines that are written"},
    OptionSpec{.name = "log-format",
               .type = OptionType::kChoice,
               .file_key = "log_format",
               .fallback = "logfmt",
               .choices = "logfmt|json",
               .value = "FORMAT",
               .commands = kRelay,
               .group = kDaemonGroup,
               .help = "form of the log lines on stderr"},
    // Selection
    OptionSpec{.name = "consumer",
               .type = OptionType::kText,
               .value = "NAME",
               .commands = kDead | kRoles,
               .group = kFilterGroup,
               .help = "the dead letters of this consumer's inbox, in the consumer's database, "
                       "instead of the relay's; for `roles`: role of a service that receives"},
    OptionSpec{.name = "consumer",
               .type = OptionType::kText,
               .value = "NAME",
               .commands = kWait,
               .group = kFilterGroup,
               .help = "the consumer that is to have applied them"},
    OptionSpec{.name = "route",
               .type = OptionType::kText,
               .value = "NAME",
               .commands = kManyDead | kDeadEdit,
               .group = kFilterGroup,
               .help = "dead letters of this route"},
    OptionSpec{.name = "event-type",
               .type = OptionType::kText,
               .value = "TYPE",
               .commands = kManyDead | kScheduled,
               .group = kFilterGroup,
               .help = "dead letters or delayed events of this event type"},
    OptionSpec{.name = "key",
               .type = OptionType::kText,
               .value = "KEY",
               .commands = kManyDead | kScheduled,
               .group = kFilterGroup,
               .help = "dead letters or delayed events of this key"},
    OptionSpec{.name = "key",
               .type = OptionType::kText,
               .value = "KEY",
               .argument_only = true,
               .commands = kExplain,
               .group = kFilterGroup,
               .help =
                   "what is not finished of this key, or of this aggregate id where events have "
                   "no key"},
    OptionSpec{.name = "route",
               .type = OptionType::kText,
               .value = "NAME",
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "the route whose events are sent again; not needed where there is one"},
    OptionSpec{.name = "since",
               .type = OptionType::kText,
               .value = "TIME",
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "events that occurred then or later: 2026-01-31T08:15:00Z (UTC), "
                       "2026-01-31, or how long ago: 90m, 2h, 7d"},
    OptionSpec{.name = "until",
               .type = OptionType::kText,
               .value = "TIME",
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "events that occurred before, likewise"},
    OptionSpec{.name = "key",
               .type = OptionType::kText,
               .value = "KEY",
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "events of this key, or of this aggregate id where they have no key"},
    OptionSpec{.name = "event-type",
               .type = OptionType::kText,
               .value = "TYPE",
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "events of this type"},
    OptionSpec{.name = "tenant",
               .type = OptionType::kText,
               .value = "ID",
               .repeatable = true,
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "events of this tenant; may be repeated"},
    OptionSpec{.name = "tenant",
               .type = OptionType::kText,
               .value = "ID",
               .argument_only = true,
               .commands = kManyDead | kScheduled,
               .group = kFilterGroup,
               .help = "dead letters or delayed events of this tenant"},
    OptionSpec{.name = "tenant",
               .type = OptionType::kText,
               .value = "ID",
               .argument_only = true,
               .commands = kExplain,
               .group = kFilterGroup,
               .help = "with --key: of this tenant's key; without it of every tenant's"},
    OptionSpec{.name = "dead-letters",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "the dead letters of the route instead of what it has published; they stay "
                       "dead letters"},
    OptionSpec{.name = "yes",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kReplay,
               .group = kFilterGroup,
               .help = "do not ask, also where all of the history is to be sent"},
    OptionSpec{.name = "rate",
               .type = OptionType::kText,
               .fallback = "500/s",
               .value = "N/s",
               .argument_only = true,
               .commands = kReplay,
               .group = kReplayGroup,
               .help = "most events sent in a second, up to 1000000; a tenth of it while live "
                       "events of the route wait"},
    OptionSpec{.name = "as-new",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kReplay,
               .group = kReplayGroup,
               .help = "as new events, which inboxes apply once more: with the UUIDv5 of run and "
                       "id for their id, and the time of the run"},
    OptionSpec{.name = "reason",
               .value = "TEXT",
               .argument_only = true,
               .commands = kReplay | kReplayResume | kReplayCancel,
               .group = kReplayGroup,
               .help = "why, for the audit and those who look; required"},
    OptionSpec{.name = "reason",
               .value = "TEXT",
               .argument_only = true,
               .commands = kChangeTenants,
               .group = kTenantGroup,
               .help = "why, for the audit and those who look; required"},
    OptionSpec{.name = "within",
               .type = OptionType::kDuration,
               .fallback = "1h",
               .min = 0,
               .max = 604'800,
               .value = "TIME",
               .argument_only = true,
               .commands = kTenantDrain,
               .group = kTenantGroup,
               .help = "how long to wait for the tenant's events to be sent"},
    OptionSpec{.name = "error-code",
               .type = OptionType::kText,
               .value = "CODE",
               .commands = kManyDead,
               .group = kFilterGroup,
               .help = "dead letters that failed with this error, for example OB_RECORD_REFUSED"},
    OptionSpec{.name = "name",
               .type = OptionType::kText,
               .value = "NAME",
               .commands = kManySagas,
               .group = kFilterGroup,
               .help = "sagas of this name"},
    OptionSpec{.name = "state",
               .type = OptionType::kChoice,
               .choices = "running|compensating|stuck|completed|compensated",
               .value = "STATE",
               .commands = kManySagas,
               .group = kFilterGroup,
               .help = "sagas in this state"},
    OptionSpec{.name = "stuck-for",
               .type = OptionType::kDuration,
               .min = 1,
               .max = 315'360'000,
               .value = "TIME",
               .commands = kManySagas,
               .group = kFilterGroup,
               .help = "sagas that are not finished and have made no progress for this long"},
    OptionSpec{.name = "all",
               .type = OptionType::kFlag,
               .commands = kDeadRetry | kDeadDiscard | kScheduledCancel,
               .group = kFilterGroup,
               .help = "every one of the table"},
    OptionSpec{.name = "to",
               .type = OptionType::kText,
               .value = "ROUTE",
               .argument_only = true,
               .commands = kDeadRetry,
               .group = kFilterGroup,
               .help = "deliver them by this route from now on, for example because theirs is "
                       "gone"},
    OptionSpec{.name = "yes",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kRoutesRetire,
               .group = kFilterGroup,
               .help = "also where the route has not finished all events"},
    OptionSpec{
        .name = "limit",
        .type = OptionType::kInteger,
        .fallback = "100",
        .unit = "rows",
        .min = 1,
        .max = 100'000,
        .value = "N",
        .commands = kDeadList | kScheduledList | kSagaList | kExplain | kReplayList,
        .group = kFilterGroup,
        .help = "most dead letters, delayed events, events of a key, sagas or replays listed"},
    OptionSpec{.name = "dry-run",
               .type = OptionType::kFlag,
               .commands = kDeadRetry | kDeadDiscard | kScheduledCancel | kPrune | kSagaResume |
                           kSagaAbort | kDoctor | kReplay,
               .group = kFilterGroup,
               .help = "only say what would be done"},
    // Dead letters
    OptionSpec{.name = "payload-file",
               .type = OptionType::kPath,
               .value = "FILE",
               .argument_only = true,
               .commands = kDeadEdit,
               .group = kEditGroup,
               .help = "file with the new payload; - is standard input"},
    OptionSpec{.name = "topic",
               .value = "TOPIC",
               .may_be_empty = true,
               .argument_only = true,
               .commands = kDeadEdit,
               .group = kEditGroup,
               .help = "the new topic; empty: the route's template says it"},
    OptionSpec{.name = "key",
               .value = "KEY",
               .may_be_empty = true,
               .argument_only = true,
               .commands = kDeadEdit,
               .group = kEditGroup,
               .help = "the new key; empty: the aggregate id"},
    OptionSpec{.name = "headers",
               .value = "JSON",
               .argument_only = true,
               .commands = kDeadEdit,
               .group = kEditGroup,
               .help = "the new headers, a JSON object, in place of all that there were"},
    // Migration
    OptionSpec{.name = "print",
               .type = OptionType::kFlag,
               .commands = kMigrate | kRoles,
               .group = "Migration",
               .help = "print the SQL and change nothing"},
    OptionSpec{.name = "uninstall",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kMigrate,
               .group = "Migration",
               .help = "remove the tables, views and functions with all that they hold; refused "
                       "while anything waits there or a relay runs"},
    OptionSpec{.name = "payload",
               .type = OptionType::kChoice,
               .fallback = "jsonb",
               .choices = "jsonb|json|text|bytea",
               .value = "TYPE",
               .commands = kMigrate,
               .group = "Migration",
               .help = "type of the payload column in a new outbox_events"},
    OptionSpec{.name = "max-payload",
               .type = OptionType::kInteger,
               .unit = "bytes",
               .min = 1'024,
               .max = 1'000'000'000,
               .value = "N",
               .commands = kMigrate,
               .group = "Migration",
               .help =
                   "largest payload that the tables take from now on; without it a table keeps "
                   "its limit, which is 1048576 in a new one. Writers have limits of their own, "
                   "and so do destinations: see claim-check"},
    OptionSpec{.name = "only",
               .type = OptionType::kChoice,
               .choices = "producer|consumer",
               .value = "SIDE",
               .commands = kMigrate | kRoles,
               .group = "Migration",
               .help = "one side's tables only"},
    // Roles
    OptionSpec{.name = "writer",
               .value = "ROLE",
               .commands = kRoles,
               .group = "Roles",
               .help = "role that writes events"},
    OptionSpec{.name = "relay",
               .value = "ROLE",
               .commands = kRoles,
               .group = "Roles",
               .help = "role of the relay, in the outbox's database and in that of a mailbox"},
    OptionSpec{.name = "operator",
               .value = "ROLE",
               .commands = kRoles,
               .group = "Roles",
               .help = "role of people who look and mend"},
    // Verification
    OptionSpec{.name = "produced",
               .type = OptionType::kPath,
               .value = "FILE...",
               .repeatable = true,
               .commands = kVerify,
               .group = "Verification",
               .help = "journals of what producers committed, as JSON lines"},
    OptionSpec{.name = "received",
               .type = OptionType::kPath,
               .value = "FILE...",
               .repeatable = true,
               .commands = kVerify,
               .group = "Verification",
               .help = "journals of what consumers received and applied; a file stands for one "
                       "consumer unless its "
                       "lines name another"},
    OptionSpec{.name = "effect-db",
               .type = OptionType::kUrl,
               .value = "URL",
               .commands = kVerify,
               .group = "Verification",
               .help = "a consumer's database, to look at its effects themselves; its dead letters "
                       "are not counted as lost"},
    OptionSpec{.name = "effect-query",
               .type = OptionType::kText,
               .value = "SQL",
               .commands = kVerify,
               .group = "Verification",
               .help = "query of --effect-db that gives a row for each effect, in their order: the "
                       "event's id, and its key and n where they are kept; stands for a consumer"},
    OptionSpec{.name = "textfile",
               .type = OptionType::kPath,
               .value = "FILE",
               .commands = kVerify,
               .group = "Verification",
               .help = "also writes the verdict there as metrics, in one step: for node_exporter's "
                       "textfile collector (FILE.prom)"},
    // A preflight
    OptionSpec{.name = "consumer-db",
               .type = OptionType::kUrl,
               .value = "URL",
               .repeatable = true,
               .commands = kExplain | kDoctor | kDashboard | kReplay,
               .group = kLookingGroup,
               .help =
                   "a consumer's database, whose mailboxes, inboxes and dead letters are looked "
                   "at, too; for doctor, dashboard and replay it may be repeated"},
    OptionSpec{.name = "consumer-db",
               .type = OptionType::kUrl,
               .value = "URL",
               .commands = kWait,
               .group = kLookingGroup,
               .help = "the consumer's database: {databases}"},
    OptionSpec{.name = "timeout",
               .type = OptionType::kDuration,
               .fallback = "10s",
               .min = 0,
               .max = 86'400,
               .value = "TIME",
               .argument_only = true,
               .commands = kWait,
               .group = kLookingGroup,
               .help = "how long to wait; 0s: one look"},
    OptionSpec{.name = "interval",
               .type = OptionType::kDuration,
               .fallback = "1s",
               .min = 1,
               .max = 3'600,
               .value = "TIME",
               .argument_only = true,
               .commands = kTop,
               .group = kLookingGroup,
               .help = "from one look to the next"},
    OptionSpec{.name = "count",
               .type = OptionType::kInteger,
               .unit = "looks",
               .min = 1,
               .max = 1'000'000'000,
               .value = "N",
               .argument_only = true,
               .commands = kTop,
               .group = kLookingGroup,
               .help = "end after so many; without it until it is left"},
    OptionSpec{.name = "once",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kTop,
               .group = kLookingGroup,
               .help = "one look, as --count 1"},
    OptionSpec{.name = "fix",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kDoctor,
               .group = kLookingGroup,
               .help = "run the statements that mend what was found; with --dry-run print them"},
    OptionSpec{.name = "fix-as",
               .type = OptionType::kUrl,
               .value = "URL",
               .commands = kDoctor,
               .group = kLookingGroup,
               .help = "the source's database as one who may run them, mostly the owner of the "
                       "tables; without it they run as the user of --from"},
    // Webhooks
    OptionSpec{.name = "id",
               .value = "ID",
               .argument_only = true,
               .commands = kWebhookAdd,
               .group = kWebhookGroup,
               .help = "the endpoint's id, up to 64 letters, digits and - _ . : @; without it a "
                       "new one"},
    OptionSpec{.name = "events",
               .value = "PATTERNS",
               .argument_only = true,
               .commands = kWebhookAdd,
               .group = kWebhookGroup,
               .help = "the event types that it gets, with commas between them; * stands for any "
                       "text: 'order.*,invoice.paid'; without it every event"},
    OptionSpec{.name = "tenant",
               .value = "ID",
               .argument_only = true,
               .commands = kWebhookAdd,
               .group = kWebhookGroup,
               .help = "it gets the events of this tenant only"},
    OptionSpec{.name = "type",
               .type = OptionType::kChoice,
               .choices = "v1|v1a",
               .value = "TYPE",
               .argument_only = true,
               .commands = kWebhookAdd | kWebhookRotate,
               .group = kWebhookGroup,
               .help = "v1: both sides have the secret (HMAC-SHA256); v1a: the receiver has the "
                       "public key alone (Ed25519); without it v1, or as the former secret"},
    OptionSpec{.name = "secret-file",
               .type = OptionType::kPath,
               .value = "FILE",
               .argument_only = true,
               .commands = kWebhookAdd | kWebhookRotate,
               .group = kWebhookGroup,
               .help = "file with the secret, whsec_... or whsk_..., instead of a new one"},
    OptionSpec{.name = "overlap",
               .type = OptionType::kDuration,
               .fallback = "24h",
               .min = 0,
               .max = 2'592'000,
               .value = "TIME",
               .argument_only = true,
               .commands = kWebhookRotate,
               .group = kWebhookGroup,
               .help = "how long the former secret signs as well; 0s: not any more"},
    OptionSpec{.name = "reason",
               .value = "TEXT",
               .argument_only = true,
               .commands = kWebhookDisable,
               .group = kWebhookGroup,
               .help = "why, for those who look"},
    OptionSpec{.name = "yes",
               .type = OptionType::kFlag,
               .argument_only = true,
               .commands = kWebhookDelete,
               .group = kWebhookGroup,
               .help = "also where something waits for the endpoint or was given up on"},
    OptionSpec{.name = "key-file",
               .type = OptionType::kPath,
               .value = "FILE",
               .commands = kWebhookAdd | kWebhookTest | kWebhookRotate,
               .group = kWebhookGroup,
               .help = "file with the key that secrets are stored under, as the relay has it: "
                       "`openssl rand -base64 32`, mode 0600; without it key_file of a "
                       "[route.webhook] in the configuration file"},
    OptionSpec{.name = "allow",
               .value = "HOSTS",
               .commands = kWebhookAdd | kWebhookTest,
               .group = kWebhookGroup,
               .help = "hosts by name, addresses and ranges (10.1.0.0/16) to which webhooks may go "
                       "though they are not public; without it allow of [route.webhook]"},
    OptionSpec{.name = "allow-http",
               .type = OptionType::kFlag,
               .commands = kWebhookAdd | kWebhookTest,
               .group = kWebhookGroup,
               .help = "URLs without TLS, too; without it allow_http of [route.webhook]"},
    OptionSpec{.name = "ca-file",
               .type = OptionType::kPath,
               .value = "FILE",
               .commands = kWebhookTest,
               .group = kWebhookGroup,
               .help =
                   "PEM file of the authorities that receivers' certificates are by; without it "
                   "ca_file of [route.webhook], or the system's"},
    // General
    OptionSpec{.name = "json",
               .type = OptionType::kFlag,
               .commands = kMigrate | kStatus | kTop | kExplain | kDead | kScheduled | kPrune |
                           kRoutes | kSaga | kVerify | kSinks | kWebhook | kDoctor | kWait |
                           kReplays | kTenants | kImportDebezium | kVersion,
               .group = kGeneralGroup,
               .help = "print JSON"},
    OptionSpec{.name = "config",
               .type = OptionType::kPath,
               .value = "FILE",
               .commands = kAll,
               .group = kGeneralGroup,
               .help = "configuration file; without it ./outbox.toml where there is one"},
};

std::string names_of_formats() {
    std::string text;
    for (const codec::Format& format : codec::formats()) {
        text.append(text.empty() ? "" : "; ").append(format.name).append(": ").append(format.help);
    }
    return text;
}

}  // namespace

std::span<const CommandSpec> command_table() {
    return kCommands;
}

std::span<const OptionSpec> option_table() {
    return kOptions;
}

std::string help_of(const OptionSpec& option) {
    std::string text(option.help);
    const auto fill = [&text](std::string_view name, const std::string& value) {
        const auto at = text.find(name);
        if (at != std::string::npos) text.replace(at, name.size(), value);
    };
    fill("{brokers}", urls_of_brokers());
    fill("{databases}", urls_of_databases());
    fill("{formats}", names_of_formats());
    return text;
}

const OptionSpec* find_option(std::string_view name, std::uint64_t commands) {
    for (const OptionSpec& option : kOptions) {
        if (option.name == name && (option.commands & commands) != 0) return &option;
    }
    return nullptr;
}

const CommandSpec* find_command(std::string_view name) {
    for (const CommandSpec& command : kCommands) {
        if (command.name == name) return &command;
    }
    return nullptr;
}

const CommandSpec& command_spec(Command command) {
    for (const CommandSpec& spec : kCommands) {
        if (spec.command == command) return spec;
    }
    return kCommands.front();
}

}  // namespace outbox::runtime
