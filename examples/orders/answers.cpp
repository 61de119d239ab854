#include "answers.h"

#include <chrono>
#include <csignal>
#include <iostream>

#include <outbox/error.h>

namespace orders {

namespace {

constexpr std::chrono::milliseconds kPause{500};

}  // namespace

Answers::Answers(OrderService& service, EventLoop& loop)
    : service_(service), loop_(loop), thread_([this] { run(); }) {}

Answers::~Answers() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stopped_.notify_all();
    loop_.stop();
    thread_.join();
}

void Answers::run() {
    try {
        while (!prepared()) {
            std::unique_lock lock(mutex_);
            if (stopped_.wait_for(lock, kPause, [this] { return stopping_; })) return;
        }
        loop_.run();
    } catch (const std::exception& error) {
        std::cerr << "order-service: " << error.what() << std::endl;
        failed_ = true;
        std::raise(SIGTERM);
    }
}

/// False while the database is away.
bool Answers::prepared() {
    try {
        service_.prepare();
        return true;
    } catch (const outbox::Error& error) {
        if (error.advice() == outbox::Advice::kStop &&
            error.code() != outbox::ErrorCode::kConnectFailed &&
            error.code() != outbox::ErrorCode::kConnectionLost)
            throw;
        return false;
    }
}

}  // namespace orders
