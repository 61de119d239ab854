package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	outbox "outbox/clients/go"
)

// What a relay does.
func relayed(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, `INSERT INTO outbox_mailbox (id, topic, key, headers, payload)
		SELECT id, 'orders', 'k', '{}', '1' FROM outbox_events`)
}

func written(t *testing.T, db *sql.DB, many int) (ids []string) {
	t.Helper()
	equal(t, committed(t, db, func(tx *sql.Tx) error {
		for i := 0; i < many; i++ {
			id, err := outbox.Emit(ctx, tx, outbox.Event{Topic: "orders", Payload: "{}"})
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	}), nil)
	return ids
}

func look(t *testing.T, db outbox.Queryer, consumer, token string) outbox.Look {
	t.Helper()
	found, err := outbox.LookFor(ctx, db, consumer, token)
	equal(t, err, nil)
	return found
}

func tokenOf(t *testing.T, ids ...string) string {
	t.Helper()
	token, err := outbox.FenceToken(ids...)
	equal(t, err, nil)
	return token
}

func TestATokenIsTheOneThatTheDatabaseMakes(t *testing.T) {
	db := open(t)
	ids := written(t, db, 101)
	for _, many := range []int{0, 1, 2, 3, 100} {
		made := value(t, db, "SELECT outbox_fence(VARIADIC '{"+strings.Join(ids[:many], ",")+"}')")
		equal(t, tokenOf(t, ids[:many]...), made)
	}
	equal(t, tokenOf(t, ids[0], ids[1], ids[0]), tokenOf(t, ids[:2]...))
	for _, wrong := range [][]string{ids, {"o-1"}, {strings.ReplaceAll(ids[0], "-", "")}} {
		if token, err := outbox.FenceToken(wrong...); err == nil {
			t.Fatal("made ", token)
		}
	}
}

func TestWhoHasTheTokenSeesHowFarTheEventsAre(t *testing.T) {
	db := open(t)
	ids := written(t, db, 2)
	token := tokenOf(t, ids...)
	equal(t, look(t, db, "stock", token), outbox.Look{State: outbox.Unknown,
		Events: []outbox.FencedEvent{
			{ID: ids[0], State: "unknown", Why: "not_seen"},
			{ID: ids[1], State: "unknown", Why: "not_seen"}}})
	relayed(t, db)
	equal(t, look(t, db, "stock", token).State, outbox.Waiting)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	waited, err := outbox.WaitFor(short, db, "stock", token)
	equal(t, waited.State, outbox.Waiting)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	mailbox := &outbox.Mailbox{DB: db, Consumer: "stock"}
	for turn(t, mailbox, apply) {
	}
	waited, err = outbox.WaitFor(ctx, db, "stock", token)
	equal(t, fmt.Sprint(waited.State, " ", waited.Settled(), " ", err), "applied true <nil>")
	equal(t, look(t, db, "billing", token).State, outbox.Unknown)
}

func TestWhoWaitsIsToldOnceItIsDead(t *testing.T) {
	db := open(t)
	token := tokenOf(t, written(t, db, 1)...)
	told := make(chan string)
	go func() {
		found, err := outbox.WaitFor(ctx, db, "stock", token)
		told <- fmt.Sprint(found.State, " ", len(found.Events), " ", err)
	}()
	relayed(t, db)
	mailbox := &outbox.Mailbox{DB: db, Consumer: "stock", MaxAttempts: 1}
	for turn(t, mailbox, func(context.Context, *sql.Tx, outbox.Message) error {
		return errors.New("no")
	}) {
	}
	equal(t, <-told, "dead 1 <nil>")
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	db := open(t)
	token := tokenOf(t, written(t, db, 1)...)
	for _, wrong := range []string{"", "obf1.", token[:len(token)-1], token + "A", "obf2" + token[4:]} {
		_, err := outbox.LookFor(ctx, db, "stock", wrong)
		var state interface{ SQLState() string }
		if !errors.As(err, &state) || state.SQLState() != "22023" {
			t.Fatal(wrong, err)
		}
	}
}
