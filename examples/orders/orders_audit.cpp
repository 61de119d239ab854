// Do the books of the four services agree? Reads their databases when no order is under way, names
// every fault, and ends with a line of figures. Exit codes: 0 they agree, 1 faults, 2 not readable.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>

#include "json_fields.h"
#include "money.h"
#include "postgres.h"
#include "sqlite.h"
#include "transaction.h"

namespace orders {

namespace {

constexpr int kExitFaults = 1;
constexpr int kExitUsage = 2;
constexpr std::int64_t kMaxFaultsShown = 20;

/// A service's database, to read.
class Book {
  public:
    explicit Book(const std::string& url) {
        if (is_postgres(url)) {
            postgres_ = std::make_unique<Postgres>(url, "orders-audit");
        } else if (const std::string path = sqlite_path(url); !path.empty()) {
            sqlite_ = std::make_unique<Sqlite>(path);
        } else {
            throw std::runtime_error("must be postgresql://... or sqlite:///path, not \"" + url +
                                     "\"");
        }
    }
    [[nodiscard]] std::vector<Transaction::Row> rows(const std::string& sql) const {
        return sqlite_ ? Transaction(sqlite_->handle()).query(sql)
                       : Transaction(postgres_->handle()).query(sql);
    }
    [[nodiscard]] bool is_sqlite() const { return sqlite_ != nullptr; }

  private:
    std::unique_ptr<Postgres> postgres_;
    std::unique_ptr<Sqlite> sqlite_;
};

struct Reservation {
    std::string product_id;
    std::int64_t quantity = 0;
    std::string state = "NONE";
};

struct Payment {
    std::string user_id;
    std::int64_t cents = 0;
    std::string state = "NONE";
};

class Audit {
  public:
    Audit(const std::string& orders, const std::string& inventory, const std::string& payments,
          const std::string& notifications, std::string mail_file)
        : orders_(orders),
          inventory_(inventory),
          payments_(payments),
          notifications_(notifications),
          mail_file_(std::move(mail_file)) {}

    int run() {
        read_reservations();
        read_payments();
        check_orders();
        check_strangers();
        check_stock();
        check_accounts();
        check_mails();
        check_given_up("order-service", orders_);
        check_given_up("inventory-service", inventory_);
        check_given_up("payment-service", payments_);
        check_given_up("notification-service", notifications_);
        std::cout << "books: " << count_ << " orders (" << confirmed_ << " confirmed, "
                  << cancelled_ << " cancelled, " << open_ << " without an outcome), " << reserved_
                  << " units reserved, " << Money{charged_}.text() << " charged, " << mails_
                  << " mails (" << mail_repeats_ << " sent again and dropped), faults " << faults_
                  << std::endl;
        return faults_ == 0 ? 0 : kExitFaults;
    }

  private:
    void fault(const std::string& text) {
        if (++faults_ <= kMaxFaultsShown) std::cout << "fault: " << text << "\n";
    }

    void read_reservations() {
        for (const auto& row :
             inventory_.rows("SELECT order_id, product_id, quantity, state FROM reservations"))
            reservations_[row[0]] = {row[1], std::stoll(row[2]), row[3]};
    }

    void read_payments() {
        for (const auto& row :
             payments_.rows("SELECT order_id, user_id, cents, state FROM payments"))
            payments_of_[row[0]] = {row[1], std::stoll(row[2]), row[3]};
    }

    void check_orders() {
        const std::string cents =
            orders_.is_sqlite() ? "total_cents" : "(total_amount * 100)::bigint";
        for (const auto& row : orders_.rows("SELECT id, status, user_id, product_id, quantity, " +
                                            cents + " FROM orders")) {
            ++count_;
            const Reservation reservation = take(reservations_, row[0]);
            const Payment payment = take(payments_of_, row[0]);
            const std::string about = "order " + row[0] + " is " + row[1] + ", its reservation " +
                                      reservation.state + ", its payment " + payment.state;
            if (row[1] == "CONFIRMED") {
                ++confirmed_;
                if (reservation.state != "RESERVED" || payment.state != "PROCESSED") fault(about);
                if (reservation.product_id != row[3] || reservation.quantity != std::stoll(row[4]))
                    fault(about + ": not what was ordered");
                if (payment.user_id != row[2] || payment.cents != std::stoll(row[5]))
                    fault(about + ": not the amount of the order");
            } else if (row[1] == "CANCELLED") {
                ++cancelled_;
                if (reservation.state == "RESERVED" || payment.state == "PROCESSED") fault(about);
            } else {
                ++open_;
                fault(about);
            }
        }
    }

    template <typename Found>
    static Found take(std::map<std::string, Found>& from, const std::string& order) {
        const auto node = from.extract(order);
        return node.empty() ? Found() : node.mapped();
    }

    /// What is left belongs to no order.
    void check_strangers() {
        for (const auto& [order, reservation] : reservations_)
            if (reservation.state == "RESERVED") fault("a reservation for no order: " + order);
        for (const auto& [order, payment] : payments_of_)
            if (payment.state == "PROCESSED") fault("a payment for no order: " + order);
    }

    void check_stock() {
        for (const auto& row : inventory_.rows(
                 "SELECT s.product_id, s.stocked, s.available, coalesce((SELECT sum(quantity) FROM "
                 "reservations r WHERE r.product_id = s.product_id AND r.state = 'RESERVED'), 0) "
                 "FROM stock s")) {
            const std::int64_t taken = std::stoll(row[1]) - std::stoll(row[2]);
            reserved_ += taken;
            if (taken != std::stoll(row[3]))
                fault("stock of " + row[0] + ": " + std::to_string(taken) +
                      " taken, but reservations of " + row[3]);
        }
    }

    void check_accounts() {
        for (const auto& row : payments_.rows(
                 "SELECT a.user_id, a.spent_cents, coalesce((SELECT sum(cents) FROM payments p "
                 "WHERE p.user_id = a.user_id AND p.state = 'PROCESSED'), 0) FROM accounts a")) {
            charged_ += std::stoll(row[1]);
            if (row[1] != row[2])
                fault("account of " + row[0] + ": charged " + Money{std::stoll(row[1])}.text() +
                      ", but payments of " + Money{std::stoll(row[2])}.text());
        }
    }

    void check_mails() {
        std::map<std::string, std::int64_t> sent;
        std::ifstream calls(mail_file_);
        if (!calls) throw std::runtime_error("cannot read " + mail_file_);
        for (std::string line; std::getline(calls, line);) {
            auto call = read_json_fields(line).fields;
            if (line.ends_with("\"sent\":true}")) {
                ++mails_;
                if (++sent[call["idempotency_key"].text] > 1)
                    fault("mail " + call["idempotency_key"].text + " was sent twice");
            } else {
                ++mail_repeats_;
            }
        }
        for (const auto& row : notifications_.rows("SELECT idempotency_key FROM mails"))
            if (sent.erase(row[0]) == 0) fault("mail " + row[0] + " is noted but was not sent");
        for (const auto& [key, times] : sent) fault("mail " + key + " was sent and is not noted");
        if (mails_ != count_ + confirmed_ + cancelled_)
            fault(std::to_string(mails_) + " mails, but " +
                  std::to_string(count_ + confirmed_ + cancelled_) + " are due");
    }

    void check_given_up(const std::string& service, const Book& book) {
        for (const auto& row : book.rows("SELECT message_id, error FROM outbox_inbox_dead_letters"))
            fault(service + " gave up on message " + row[0] + ": " + row[1]);
    }

    const Book orders_;
    const Book inventory_;
    const Book payments_;
    const Book notifications_;
    const std::string mail_file_;
    std::map<std::string, Reservation> reservations_;
    std::map<std::string, Payment> payments_of_;
    std::int64_t count_ = 0;
    std::int64_t confirmed_ = 0;
    std::int64_t cancelled_ = 0;
    std::int64_t open_ = 0;
    std::int64_t reserved_ = 0;
    std::int64_t charged_ = 0;
    std::int64_t mails_ = 0;
    std::int64_t mail_repeats_ = 0;
    std::int64_t faults_ = 0;
};

int main_checked(int argc, char** argv) {
    CLI::App app("Checks that the books of the four services agree, when no order is under way.");
    std::string orders;
    std::string inventory;
    std::string payments;
    std::string notifications;
    std::string mails;
    app.add_option("--orders", orders, "database of order-service")->required()->type_name("URL");
    app.add_option("--inventory", inventory, "database of inventory-service")
        ->required()
        ->type_name("URL");
    app.add_option("--payments", payments, "database of payment-service")
        ->required()
        ->type_name("URL");
    app.add_option("--notifications", notifications, "database of notification-service")
        ->required()
        ->type_name("URL");
    app.add_option("--mails", mails, "the mail provider's file")->required()->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    return Audit(orders, inventory, payments, notifications, mails).run();
}

}  // namespace

}  // namespace orders

int main(int argc, char** argv) {
    try {
        return orders::main_checked(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "orders-audit: " << error.what() << std::endl;
        return orders::kExitUsage;
    }
}
