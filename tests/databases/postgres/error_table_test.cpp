#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <utility>

#include "databases/postgres/errors.h"

namespace outbox::test {
namespace {

using postgres::Concerns;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const postgres::ErrorContext kContext{"relay", "shop", "db:5432", {}};

ErrorInfo relayed(std::string_view state) {
    return postgres::relay_error(state, "the server's words", kContext);
}
ErrorInfo delivered(std::string_view state) {
    return postgres::mailbox_error(state, "the server's words");
}
ErrorInfo received(std::string_view state) {
    return postgres::receive_error(state, "the server's words", "testing");
}

TEST(PostgresErrorTable, AStateHasOneCodeAndAnAdviceForEachRole) {
    EXPECT_EQ(relayed("40001").code, ErrorCode::kConflict);
    EXPECT_EQ(relayed("40001").advice, Advice::kRetryDestination);
    EXPECT_EQ(received("40001").code, ErrorCode::kConflict);
    EXPECT_EQ(received("40001").advice, Advice::kRetryEvent);
    EXPECT_EQ(relayed("25P03").code, ErrorCode::kConnectionLost);
    EXPECT_EQ(received("25P03").code, ErrorCode::kConnectionLost);
    for (const char* state : {"42501", "42P01", "28P01", "3D000"}) {
        EXPECT_EQ(relayed(state).code, received(state).code) << state;
        EXPECT_EQ(relayed(state).code, delivered(state).code) << state;
        EXPECT_EQ(relayed(state).advice, Advice::kStop) << state;
        EXPECT_EQ(received(state).advice, Advice::kRetryDestination) << state;
        EXPECT_EQ(delivered(state).advice, Advice::kRetryDestination) << state;
    }
}

TEST(PostgresErrorTable, AMailboxSpeaksAsSinksDo) {
    EXPECT_EQ(delivered("22021").code, ErrorCode::kRecordRefused);
    EXPECT_EQ(delivered("22021").advice, Advice::kDeadLetter);
    EXPECT_EQ(delivered("23505").code, ErrorCode::kRecordRefused);
    EXPECT_EQ(delivered("23505").advice, Advice::kRetryEvent);
    EXPECT_EQ(delivered("55P03").code, ErrorCode::kSinkTimeout);
    EXPECT_EQ(delivered("57014").code, ErrorCode::kSinkTimeout);
    EXPECT_EQ(delivered("40P01").code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(delivered("53100").code, ErrorCode::kDiskFull);
    EXPECT_EQ(delivered("99999").code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(delivered("").code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(delivered("99999").advice, Advice::kRetryDestination);
}

TEST(PostgresErrorTable, AStoreOfPayloadsIsADestinationButForWhatIsTooLarge) {
    const auto stored = [](std::string_view state) {
        return postgres::store_error(state, "the server's words", "object store url");
    };
    for (const char* state : {"54000", "22001"}) {
        EXPECT_EQ(stored(state).code, ErrorCode::kPayloadTooLarge) << state;
        EXPECT_EQ(stored(state).advice, Advice::kDeadLetter) << state;
        EXPECT_EQ(received(state).code, ErrorCode::kInvalidEvent) << state;
    }
    for (const auto& [state, code] :
         {std::pair("28P01", ErrorCode::kAuthFailed), std::pair("28000", ErrorCode::kAuthFailed),
          std::pair("3D000", ErrorCode::kNoSuchDatabase), std::pair("42501", ErrorCode::kNoRights),
          std::pair("53100", ErrorCode::kDiskFull), std::pair("23505", ErrorCode::kSinkUnavailable),
          std::pair("42P01", ErrorCode::kSinkUnavailable),
          std::pair("57P01", ErrorCode::kSinkUnavailable),
          std::pair("", ErrorCode::kSinkUnavailable)}) {
        EXPECT_EQ(stored(state).code, code) << state;
        EXPECT_EQ(stored(state).advice, Advice::kRetryDestination) << state;
        EXPECT_EQ(stored(state).backend_code, state);
        EXPECT_THAT(stored(state).message, StartsWith("object store url: the server's words"));
    }
    EXPECT_THAT(stored("42501").message, HasSubstr("; GRANT SELECT, INSERT, UPDATE"));
}

TEST(PostgresErrorTable, WhatIsNotListedStopsTheRelayAndIsAnOutageToAConsumer) {
    EXPECT_EQ(relayed("99999").code, ErrorCode::kQueryFailed);
    EXPECT_EQ(relayed("99999").advice, Advice::kStop);
    EXPECT_EQ(received("99999").code, ErrorCode::kQueryFailed);
    EXPECT_EQ(received("99999").advice, Advice::kRetryDestination);
    EXPECT_EQ(relayed("99999").message, "the server's words");
    EXPECT_EQ(received("99999").message, "testing: the server's words");
}

TEST(PostgresErrorTable, RemediesNameWhatTheErrorIsAboutAndAreTakenOffAgain) {
    const ErrorInfo login = relayed("28000");
    EXPECT_THAT(login.message, HasSubstr("check user relay"));
    EXPECT_THAT(login.message, EndsWith("for database shop"));
    EXPECT_EQ(postgres::words_of(login), "the server's words");
    EXPECT_EQ(postgres::words_of(relayed("22P02")), "the server's words");
    EXPECT_EQ(postgres::words_of(relayed("22000")), "the server's words");
}

TEST(PostgresErrorTable, AServerThatIsNoStandbyIsNotTakenForOneWhereNothingCanBeWritten) {
    const auto why = [](std::optional<bool> standby) {
        postgres::ErrorContext context = kContext;
        context.standby = standby;
        const ErrorInfo error = postgres::relay_error("25006", "the server's words", context);
        EXPECT_EQ(postgres::words_of(error), "the server's words");
        return error.message;
    };
    EXPECT_THAT(why(true), HasSubstr("db:5432 is a standby"));
    EXPECT_THAT(why(true), Not(HasSubstr("default_transaction_read_only")));
    EXPECT_THAT(why(false), HasSubstr("default_transaction_read_only is on for user relay, "
                                      "database shop or the server"));
    EXPECT_THAT(why(false), Not(HasSubstr("standby")));
    EXPECT_THAT(why(std::nullopt), HasSubstr("db:5432 is a standby"));
    EXPECT_THAT(why(std::nullopt), HasSubstr("default_transaction_read_only is on"));
    for (const ErrorInfo& error : {delivered("25006"), received("25006")})
        EXPECT_THAT(error.message, HasSubstr("or "));
}

TEST(PostgresErrorTable, AnIdleSessionThatWasEndedIsToldWithItsSetting) {
    for (const ErrorInfo& error : {relayed("57P05"), received("57P05")}) {
        EXPECT_EQ(error.code, ErrorCode::kConnectionLost);
        EXPECT_EQ(error.advice, Advice::kRetryDestination);
        EXPECT_THAT(error.message, HasSubstr("SET idle_session_timeout = 0"));
        EXPECT_THAT(error.message, Not(HasSubstr("stopping")));
    }
    EXPECT_EQ(postgres::words_of(relayed("57P05")), "the server's words");
    EXPECT_THAT(relayed("57P01").message, HasSubstr("the server is stopping or starting"));
}

TEST(PostgresErrorTable, SaysWhetherRowsAreInTheWay) {
    for (const char* state : {"23505", "22003", "55P03", "P0001", "99999"}) {
        EXPECT_EQ(postgres::what_concerns(relayed(state)), Concerns::kRows) << state;
    }
    for (const char* state : {"42501", "3D000", "40001", "55006", "57014", "57P01", "08006",
                              "53400", "58030", "XX000"}) {
        EXPECT_EQ(postgres::what_concerns(relayed(state)), Concerns::kPerhaps) << state;
    }
    for (const char* state : {"", "53100", "53200", "53300", "25006"}) {
        EXPECT_EQ(postgres::what_concerns(relayed(state)), Concerns::kAll) << state;
    }
}

TEST(PostgresErrorTable, FindsTheStateOfARefusedConnection) {
    std::string_view text;
    EXPECT_EQ(
        postgres::sqlstate_in("connection to server at \"h\" failed: FATAL:  28P01: no\nX", &text),
        "28P01");
    EXPECT_EQ(text, "no");
    EXPECT_EQ(postgres::sqlstate_in("could not translate host name"), "");
}

}  // namespace
}  // namespace outbox::test
