#include "tests/brokers/pulsar/fake_broker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include "brokers/pulsar/wire.h"

namespace outbox::test {
namespace {

using namespace pulsar;

constexpr std::uint64_t kSend = 6;

std::string frame(unsigned type, const std::string& command) {
    std::string base;
    append_number(1, type, base);
    append_bytes(type, command, base);
    std::string out;
    append_u32(static_cast<std::uint32_t>(base.size() + 4), out);
    append_u32(static_cast<std::uint32_t>(base.size()), out);
    return out + base;
}

struct Parts {
    std::map<std::uint64_t, std::uint64_t> numbers;
    std::map<std::uint64_t, std::string> texts;
};

Parts parts_of(const std::string& message) {
    Parts parts;
    Fields fields(message);
    while (const auto field = fields.next()) {
        parts.numbers[field->number] = field->value;
        parts.texts[field->number] = std::string(field->bytes);
    }
    return parts;
}

std::string lookup_answer(std::uint64_t request, const FakeBroker::Place& place) {
    std::string command;
    append_bytes(1, "pulsar://" + place.host + ":" + std::to_string(place.port), command);
    append_number(3, place.redirects ? 0 : 1, command);
    append_number(4, request, command);
    append_number(5, place.authoritative ? 1 : 0, command);
    append_number(8, place.through_proxy ? 1 : 0, command);
    return frame(24, command);
}

// Two numbers, as most answers have.
std::string numbers(unsigned type, std::uint64_t first, std::uint64_t second) {
    std::string command;
    append_number(1, first, command);
    append_number(2, second, command);
    return frame(type, command);
}

}  // namespace

FakeBroker::FakeBroker(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 8) != 0) {
        throw std::runtime_error("no port to listen at");
    }
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ::ntohs(address.sin_port);
    accepting_ = std::thread([this] {
        for (int client = 0; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
            const std::scoped_lock lock(mutex_);
            clients_.push_back(client);
            threads_.emplace_back([this, client] { serve(client); });
        }
    });
}

FakeBroker::~FakeBroker() {
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    drop_connections();
    for (std::thread& thread : threads_) thread.join();
    for (const int client : clients_) ::close(client);
    ::close(listener_);
}

void FakeBroker::set_behaviour(Behaviour behaviour) {
    const std::scoped_lock lock(mutex_);
    behaviour_ = std::move(behaviour);
}

void FakeBroker::drop_connections() {
    const std::scoped_lock lock(mutex_);
    for (const int client : clients_) ::shutdown(client, SHUT_RDWR);
}

std::size_t FakeBroker::messages() {
    const std::scoped_lock lock(mutex_);
    return messages_;
}

std::vector<std::string> FakeBroker::asked() {
    const std::scoped_lock lock(mutex_);
    return asked_;
}

void FakeBroker::serve(int client) {
    std::string in;
    std::size_t place = 0;
    char bytes[65'536];
    for (ssize_t count = 0; (count = ::recv(client, bytes, sizeof bytes, 0)) > 0;) {
        in.append(bytes, static_cast<std::size_t>(count));
        while (in.size() >= 8 && in.size() >= 4 + u32_at(in, 0)) {
            const std::string frame = in.substr(0, 4 + u32_at(in, 0));
            const Parts base = parts_of(frame.substr(8, u32_at(frame, 4)));
            in.erase(0, frame.size());
            const std::uint64_t type = base.numbers.at(1);
            if (type == kSend && ends(frame, ++place)) {
                ::shutdown(client, SHUT_RDWR);
                return;
            }
            const std::string said = answer(type, base.texts.at(type));
            static_cast<void>(::send(client, said.data(), said.size(), MSG_NOSIGNAL));
        }
    }
}

bool FakeBroker::ends(const std::string& frame, std::size_t place) {
    const auto ends_at = [this] {
        const std::scoped_lock lock(mutex_);
        return behaviour_.ends;
    }();
    return ends_at && ends_at(frame, place);
}

std::string FakeBroker::answer(std::uint64_t type, const std::string& command) {
    const std::scoped_lock lock(mutex_);
    Parts parts = parts_of(command);
    switch (type) {
        case 2: {  // CONNECT
            if (!parts.texts[6].empty()) asked_.push_back(parts.texts[6]);
            std::string connected;
            append_bytes(1, "fake", connected);
            return frame(3, connected);
        }
        case 5: {  // PRODUCER
            std::string made;
            append_number(1, parts.numbers[3], made);
            append_bytes(2, parts.texts[4], made);
            return frame(17, made);
        }
        case kSend:
            ++messages_;
            return behaviour_.answers_messages ? numbers(7, parts.numbers[1], parts.numbers[2])
                                               : "";
        case 18:  // PING
            return frame(19, "");
        case 21:  // PARTITIONED_METADATA
            return numbers(22, 0, parts.numbers[2]);
        case 23: {  // LOOKUP
            const Place place = behaviour_.lookup(parts.texts[1], parts.numbers[3] != 0);
            return place.port == 0 ? "" : lookup_answer(parts.numbers[2], place);
        }
        default:
            return "";
    }
}

}  // namespace outbox::test
