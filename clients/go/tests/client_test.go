// Package tests runs the client against the server that DATABASE_URL names, whose database `outbox
// migrate` has made. A module of its own, so that the client itself needs no driver.
package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	outbox "outbox/clients/go"
)

var ctx = context.Background()

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	run(t, db, "CREATE TABLE IF NOT EXISTS effects (n serial, id text)")
	run(t, db, "CREATE TABLE IF NOT EXISTS orders (id text); CREATE TABLE IF NOT EXISTS invoices "+
		"(order_id text)")
	run(t, db, "TRUNCATE outbox_events, outbox_mailbox, outbox_mailbox_tries, outbox_inbox, "+
		"outbox_inbox_dead_letters, outbox_idempotency, effects, orders, invoices")
	return db
}

func with(url, option string) string {
	if strings.Contains(url, "?") {
		return url + "&" + option
	}
	return url + "?" + option
}

func run(t *testing.T, db *sql.DB, query string, values ...any) {
	t.Helper()
	if _, err := db.Exec(query, values...); err != nil {
		t.Fatal(err)
	}
}

func value(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var found sql.NullString
	if err := db.QueryRow(query).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found.String
}

func arrive(t *testing.T, db *sql.DB, id, key string) {
	t.Helper()
	run(t, db, `INSERT INTO outbox_mailbox (id, topic, key, headers, payload)
		VALUES ($1, 'orders', $2, '{"type": "A"}', '{"n": 1}')`, id, key)
}

func apply(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES ($1)", message.ID)
	return err
}

func effects(t *testing.T, db *sql.DB) string {
	t.Helper()
	return value(t, db, "SELECT string_agg(id, ' ' ORDER BY n) FROM effects")
}

func turn(t *testing.T, mailbox *outbox.Mailbox, handler outbox.Handler) bool {
	t.Helper()
	some, err := mailbox.Turn(ctx, handler)
	if err != nil {
		t.Fatal(err)
	}
	return some
}

func equal(t *testing.T, found, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(found, wanted) {
		t.Fatalf("found %v, wanted %v", found, wanted)
	}
}

// committed runs the work in a transaction that commits.
func committed(t *testing.T, db *sql.DB, work func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestTheVersionIsTheProducts(t *testing.T) {
	equal(t, outbox.Version, os.Getenv("OUTBOX_VERSION"))
}

func TestAnEventCommitsWithTheTransactionOrNotAtAll(t *testing.T) {
	db := open(t)
	var id string
	err := committed(t, db, func(tx *sql.Tx) (err error) {
		id, err = outbox.Emit(ctx, tx, outbox.Event{AggregateType: "Order", AggregateID: "o-1",
			Payload: map[string]int{"n": 1}, Headers: map[string]string{"a": "b"}})
		return err
	})
	equal(t, err, nil)
	failed := errors.New("the work failed")
	err = committed(t, db, func(tx *sql.Tx) error {
		if _, err := outbox.Emit(ctx, tx, outbox.Event{Topic: "orders", Payload: "2"}); err != nil {
			return err
		}
		return failed
	})
	equal(t, err, failed)
	equal(t, value(t, db, "SELECT string_agg(id::text, ' ') FROM outbox_events"), id)
	equal(t, value(t, db, "SELECT headers ->> 'a' || payload::text FROM outbox_events"), `b{"n": 1}`)
}

func TestAnEventThatIsNotValidIsRefusedWithItsState(t *testing.T) {
	db := open(t)
	for _, event := range []outbox.Event{{}, {Topic: "not valid", Payload: "1"},
		{Topic: "orders", Payload: "no json"}, {Topic: "orders", Payload: make(chan int)}} {
		if committed(t, db, func(tx *sql.Tx) error {
			_, err := outbox.Emit(ctx, tx, event)
			return err
		}) == nil {
			t.Errorf("%v was taken", event)
		}
	}
	equal(t, value(t, db, "SELECT count(*) FROM outbox_events"), "0")
}

func TestADelayedEventWaitsForItsTime(t *testing.T) {
	db := open(t)
	equal(t, committed(t, db, func(tx *sql.Tx) error {
		_, err := outbox.Emit(ctx, tx, outbox.Event{Topic: "reminders", Payload: "1",
			Key: "k", LockKey: true, AvailableAt: time.Now().Add(time.Hour)})
		return err
	}), nil)
	equal(t, value(t, db, "SELECT count(*) FROM outbox_events"), "0")
	equal(t, value(t, db, "WITH gone AS (DELETE FROM outbox_scheduled RETURNING 1) "+
		"SELECT count(*) FROM gone"), "1")
}

func TestMessagesAreAppliedOnceAndInOrder(t *testing.T) {
	db := open(t)
	for _, id := range []string{"a", "b", "a2"} {
		arrive(t, db, id, "k")
	}
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing"}
	equal(t, turn(t, mailbox, apply), true)
	arrive(t, db, "b", "k") // a repeat
	turn(t, mailbox, apply)
	equal(t, turn(t, mailbox, apply), false)
	equal(t, effects(t, db), "a b a2")
}

func TestAFailingMessageIsTriedAgainAndThenDeadAndOthersGoOn(t *testing.T) {
	for name, fail := range map[string]func(tx *sql.Tx) error{
		"division by zero": func(tx *sql.Tx) error {
			_, err := tx.Exec("SELECT 1 / 0")
			return err
		},
		"the work's own \x00\xff": func(*sql.Tx) error { return errors.New("the work's own \x00\xff") },
		"panic: of a nil map":     func(*sql.Tx) error { panic("of a nil map") },
		// The transaction can do nothing more.
		"transaction is aborted": func(tx *sql.Tx) error {
			tx.Exec("SELECT 1 / 0")
			return nil
		},
	} {
		db := open(t)
		arrive(t, db, "bad", "k")
		arrive(t, db, "behind", "k")
		arrive(t, db, "other", "o")
		handler := func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
			var payload struct{ N int }
			equal(t, message.JSON(&payload), nil)
			equal(t, payload.N, 1)
			equal(t, message.Headers["type"], "A")
			if message.ID == "bad" {
				return fail(tx)
			}
			return apply(ctx, tx, message)
		}
		var told []string
		mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", MaxAttempts: 2,
			OnError: func(err error) { told = append(told, err.Error()) }}
		equal(t, turn(t, mailbox, handler), true)
		equal(t, turn(t, mailbox, handler), true)
		equal(t, effects(t, db), "other")
		run(t, db, "UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
		equal(t, turn(t, mailbox, handler), true)
		equal(t, turn(t, mailbox, handler), true)
		equal(t, effects(t, db), "other behind")
		kept := strings.NewReplacer("\x00", "?", "\xff", "?").Replace(name)
		if cause := value(t, db, "SELECT error FROM outbox_inbox_dead_letters"); !strings.Contains(cause, kept) {
			t.Errorf("%q is not in %q", kept, cause)
		}
		equal(t, len(told), 2)
	}
}

func TestMembersRunUntilTheyAreStoppedAndShareTheWork(t *testing.T) {
	db := open(t)
	var wanted []string
	for n := 0; n < 60; n++ {
		wanted = append(wanted, fmt.Sprintf("m%03d", n))
		arrive(t, db, wanted[n], strconv.Itoa(n%5))
	}
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	var members sync.WaitGroup
	for i := 0; i < 3; i++ {
		members.Add(1)
		go func() {
			defer members.Done()
			mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", Batch: 7, Idle: time.Millisecond}
			if err := mailbox.Run(stopping, apply); err != nil {
				t.Error(err)
			}
		}()
	}
	for deadline := time.Now().Add(time.Minute); value(t, db,
		"SELECT count(*) FROM outbox_mailbox") != "0"; {
		if time.Now().After(deadline) {
			t.Fatal("not all were applied")
		}
	}
	stop()
	members.Wait()
	found := strings.Fields(effects(t, db))
	sort.Strings(found)
	equal(t, found, wanted)
}

func TestWhoIsStoppedCountsNoFailure(t *testing.T) {
	db := open(t)
	arrive(t, db, "a", "k")
	stopping, stop := context.WithCancel(ctx)
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing"}
	err := mailbox.Run(stopping, func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
		stop()
		return apply(ctx, tx, message)
	})
	equal(t, err, nil)
	equal(t, value(t, db, "SELECT count(*) FROM outbox_mailbox_tries"), "0")
	// The server may have its lock for a moment longer.
	for deadline := time.Now().Add(time.Minute); effects(t, db) == ""; turn(t, mailbox, apply) {
		if time.Now().After(deadline) {
			t.Fatal("it was not applied")
		}
	}
	equal(t, effects(t, db), "a")
}

func TestALostConnectionIsNotTheMessagesFault(t *testing.T) {
	db := open(t)
	arrive(t, db, "a", "k")
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	ended, outages := false, 0
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing",
		OnError: func(err error) { outages++ }}
	err := mailbox.Run(stopping, func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
		if !ended {
			ended = true
			_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		}
		defer stop()
		equal(t, value(t, db, "SELECT count(*) FROM outbox_mailbox_tries"), "0")
		return nil
	})
	equal(t, err, nil)
	equal(t, outages, 1)
}

func TestWhatOnlyAPersonCanMendEndsRun(t *testing.T) {
	db := open(t)
	run(t, db, "DROP ROLE IF EXISTS nobody; CREATE ROLE nobody")
	alone, err := db.Conn(ctx)
	equal(t, err, nil)
	defer alone.Close()
	other, err := sql.Open("pgx", with(os.Getenv("DATABASE_URL"), "options=-c%20role%3Dnobody"))
	equal(t, err, nil)
	defer other.Close()
	mailbox := &outbox.Mailbox{DB: other, Consumer: "billing"}
	if err := mailbox.Run(ctx, apply); err == nil || !strings.Contains(err.Error(), "permission") {
		t.Errorf("%v", err)
	}
}

func TestAMailboxThatIsNotWholeIsSaidAtOnce(t *testing.T) {
	db := open(t)
	for _, mailbox := range []outbox.Mailbox{{}, {DB: db}, {Consumer: "billing"}} {
		if err := mailbox.Run(ctx, apply); err == nil || !strings.Contains(err.Error(), "needs") {
			t.Errorf("%v", err)
		}
	}
	mailbox := outbox.Mailbox{DB: db, Consumer: "billing", Batch: -1}
	if err := mailbox.Run(ctx, apply); err == nil {
		t.Error("a batch of -1 was taken")
	}
}

func TestARequestThatComesAgainGetsItsFirstAnswer(t *testing.T) {
	db := open(t)
	answer := func(fingerprint string) (claim outbox.Claim) {
		equal(t, committed(t, db, func(tx *sql.Tx) (err error) {
			claim, err = outbox.ClaimKey(ctx, tx, "alice", "key-1", fingerprint)
			if err != nil || claim.State != outbox.New {
				return err
			}
			return outbox.CompleteKey(ctx, tx, "alice", "key-1", claim, 201,
				http.Header{"A": {"b"}, "Link": {"x", "y"}, "Set-Cookie": {"s"}}, []byte("made"))
		}), nil)
		return claim
	}
	equal(t, answer("x").State, outbox.New)
	repeat := answer("x")
	equal(t, repeat, outbox.Claim{State: outbox.Repeat, Attempt: 1, Status: 201,
		Headers: http.Header{"A": {"b"}, "Link": {"x", "y"}}, Body: []byte("made")})
	equal(t, answer("y").State, outbox.Mismatch)
	equal(t, committed(t, db, func(tx *sql.Tx) error {
		return outbox.CompleteKey(ctx, tx, "alice", "key-1", repeat, 200, nil, nil)
	}), outbox.ErrLost)
}

func TestAKeyThatIsClaimedElsewhereIsRunning(t *testing.T) {
	db := open(t)
	equal(t, committed(t, db, func(first *sql.Tx) error {
		if _, err := outbox.ClaimKey(ctx, first, "alice", "key-2", "x"); err != nil {
			return err
		}
		return committed(t, db, func(second *sql.Tx) error {
			claim, err := outbox.ClaimKey(ctx, second, "alice", "key-2", "x")
			equal(t, claim.State, outbox.Running)
			return err
		})
	}), nil)
}

// drain drains the mailbox, waits over at once.
func drain(t *testing.T, db *sql.DB, mailbox *outbox.Mailbox, handler outbox.Handler) {
	t.Helper()
	for i := 0; i < 1000; i++ {
		if !turn(t, mailbox, handler) {
			run(t, db, "UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
			if value(t, db, "SELECT count(*) FROM outbox_mailbox") == "0" {
				return
			}
		}
	}
	t.Fatal("it goes on for ever")
}

// runUntilEmpty runs the mailbox until nothing waits; Run must not end before.
func runUntilEmpty(t *testing.T, db *sql.DB, mailbox *outbox.Mailbox, handler outbox.Handler) {
	t.Helper()
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mailbox.Run(stopping, handler) }()
	for deadline := time.Now().Add(time.Minute); value(t, db,
		"SELECT count(*) FROM outbox_mailbox") != "0"; {
		run(t, db, "UPDATE outbox_mailbox_tries SET not_before = '-infinity'")
		select {
		case err := <-ended:
			t.Fatalf("Run returned %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("it goes on for ever")
		}
	}
	stop()
	equal(t, <-ended, nil)
}

func dead(t *testing.T, db *sql.DB) string {
	t.Helper()
	return value(t, db, "SELECT string_agg(message_id || attempts, ' ') FROM outbox_inbox_dead_letters")
}

func TestACommitThatFailsCountsForItsOwnMessageOnly(t *testing.T) {
	db := open(t)
	run(t, db, "CREATE TABLE IF NOT EXISTS late (id text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	for _, m := range [][2]string{{"a", "a"}, {"bad", "k"}, {"b", "b"}, {"behind", "k"}, {"c", "c"}} {
		arrive(t, db, m[0], m[1])
	}
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", MaxAttempts: 2}
	handler := func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
		if message.ID == "bad" {
			if _, err := tx.Exec("INSERT INTO late VALUES ('twice'), ('twice')"); err != nil {
				return err
			}
		}
		return apply(ctx, tx, message)
	}
	for turn(t, mailbox, handler) {
	}
	equal(t, value(t, db, "SELECT string_agg(id || attempts, ' ') FROM outbox_mailbox_tries"), "bad1")
	drain(t, db, mailbox, handler)
	equal(t, effects(t, db), "a b c behind")
	equal(t, dead(t, db), "bad2")
	if cause := value(t, db, "SELECT error FROM outbox_inbox_dead_letters"); !strings.Contains(cause, "23505") {
		t.Error(cause)
	}
}

func TestAMessageThatCostsTheSessionAgainAndAgainIsCountedAndOthersGoOn(t *testing.T) {
	watch := open(t)
	for name, lose := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"terminated": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		},
		"an error of its own": func(ctx context.Context, tx *sql.Tx) error {
			tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return errors.New("of the handler")
		},
		"its own statement given up": func(ctx context.Context, tx *sql.Tx) error {
			short, giveUp := context.WithCancel(ctx)
			defer giveUp()
			go func() {
				for sleeping := false; !sleeping; {
					watch.QueryRow("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = " +
						"'SELECT pg_sleep(60)' AND state = 'active'").Scan(&sleeping)
				}
				giveUp()
			}()
			_, err := tx.ExecContext(short, "SELECT pg_sleep(60)")
			return err
		},
	} {
		db := open(t)
		for _, m := range [][2]string{{"a", "a"}, {"bad", "k"}, {"b", "b"}, {"behind", "k"}} {
			arrive(t, db, m[0], m[1])
		}
		tries := 0
		mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", MaxAttempts: 2, Idle: time.Millisecond}
		runUntilEmpty(t, db, mailbox, func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
			if message.ID == "bad" {
				tries++
				return lose(ctx, tx)
			}
			return apply(ctx, tx, message)
		})
		found := strings.Fields(effects(t, db))
		sort.Strings(found)
		equal(t, found, []string{"a", "b", "behind"})
		equal(t, dead(t, db), "bad2")
		if tries != 3+2 { // the first three may have been an outage
			t.Errorf("%s: %d tries", name, tries)
		}
	}
}

func TestAConflictIsTriedAgainAtOnceAndCountsInTheEnd(t *testing.T) {
	db := open(t)
	for _, m := range [][2]string{{"a", "a"}, {"bad", "k"}, {"once", "o"}, {"behind", "k"}} {
		arrive(t, db, m[0], m[1])
	}
	calls := map[string]int{}
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", MaxAttempts: 2}
	drain(t, db, mailbox, func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
		calls[message.ID]++
		if message.ID == "bad" || message.ID == "once" && calls["once"] == 1 {
			if _, err := tx.Exec("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END $$"); err != nil {
				return fmt.Errorf("of the handler: %w", err)
			}
		}
		return apply(ctx, tx, message)
	})
	found := strings.Fields(effects(t, db))
	sort.Strings(found)
	equal(t, found, []string{"a", "behind", "once"})
	equal(t, dead(t, db), "bad2")
	equal(t, calls["bad"], 2*(20+1))
}

func TestAServerThatOnlyReadsForAWhileIsWaitedOut(t *testing.T) {
	db := open(t)
	db.SetMaxOpenConns(1) // one session, which the setting does not reach
	set := fmt.Sprintf("ALTER DATABASE %q ", value(t, db, "SELECT current_database()"))
	run(t, db, set+"SET default_transaction_read_only = on")
	t.Cleanup(func() {
		run(t, db, "SET default_transaction_read_only = off")
		run(t, db, set+"RESET default_transaction_read_only")
	})
	arrive(t, db, "a", "k")
	other, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	equal(t, err, nil)
	defer other.Close()
	other.SetMaxIdleConns(0)
	told := 0
	mailbox := &outbox.Mailbox{DB: other, Consumer: "billing", MaxAttempts: 1, Idle: time.Millisecond,
		OnError: func(err error) {
			if told++; told == 2 {
				run(t, db, set+"RESET default_transaction_read_only")
			}
		}}
	runUntilEmpty(t, db, mailbox, apply)
	equal(t, effects(t, db), "a")
	equal(t, dead(t, db), "")
}

func TestADatabaseOfAnotherEncodingKeepsWhatItCanOfACause(t *testing.T) {
	db, err := sql.Open("pgx", with(os.Getenv("LATIN1_URL"), "client_encoding=UTF8"))
	equal(t, err, nil)
	defer db.Close()
	run(t, db, "TRUNCATE outbox_mailbox, outbox_mailbox_tries, outbox_inbox, outbox_inbox_dead_letters")
	run(t, db, "INSERT INTO outbox_mailbox (id, topic, key, payload) VALUES ('bad', 't', 'Müller', '{}')")
	key := ""
	mailbox := &outbox.Mailbox{DB: db, Consumer: "billing", MaxAttempts: 1}
	drain(t, db, mailbox, func(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
		key = message.Key.String
		return errors.New("5 € für Müller")
	})
	equal(t, key, "Müller")
	equal(t, value(t, db, "SELECT error FROM outbox_inbox_dead_letters"), `"5 \u20ac f\u00fcr M\u00fcller"`)
}

func TestAnEmptyKeyIsRefused(t *testing.T) {
	db := open(t)
	if err := committed(t, db, func(tx *sql.Tx) error {
		_, err := outbox.ClaimKey(ctx, tx, "alice", "", "x")
		return err
	}); err == nil || !strings.Contains(err.Error(), "22004") {
		t.Errorf("%v", err)
	}
}
