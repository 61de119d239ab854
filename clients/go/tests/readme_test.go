package tests

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "outbox/clients/go"
)

// The code of README.md; tests/docs/language_pages.py compares the two.

func placeOrder(ctx context.Context, db *sql.DB, order string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err = tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, order); err != nil {
		return err
	}
	if _, err = outbox.Emit(ctx, tx, outbox.Event{AggregateType: "Order", AggregateID: order,
		EventType: "OrderPlaced", Payload: map[string]string{"order_id": order}}); err != nil {
		return err
	}
	return tx.Commit()
}

// In the transaction that takes the message: neither commits nor rolls back.
func bill(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
	var placed struct {
		OrderID string `json:"order_id"`
	}
	if err := message.JSON(&placed); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO invoices (order_id) VALUES ($1)`, placed.OrderID)
	return err
}

func billing(ctx context.Context, db *sql.DB) error {
	mailbox := outbox.Mailbox{DB: db, Consumer: "billing"}
	return mailbox.Run(ctx, bill) // until ctx is done
}

func billed(ctx context.Context, consumer *sql.DB, eventID string) (bool, error) {
	token, err := outbox.FenceToken(eventID) // goes with the answer, as a header
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	look, err := outbox.WaitFor(ctx, consumer, "billing", token)
	return look.State == outbox.Applied, err
}

func answer(ctx context.Context, tx *sql.Tx, caller, key, fingerprint string) (int, []byte, error) {
	claim, err := outbox.ClaimKey(ctx, tx, caller, key, fingerprint)
	switch {
	case err != nil:
		return 0, nil, err
	case claim.State == outbox.Repeat:
		return claim.Status, claim.Body, nil
	case claim.State == outbox.Running:
		return 409, nil, nil
	case claim.State == outbox.Mismatch:
		return 422, nil, nil
	}
	body := []byte("placed\n") // the request's work, in the same transaction
	return 201, body, outbox.CompleteKey(ctx, tx, caller, key, claim, 201, nil, body)
}

func TestTheReadme(t *testing.T) {
	db := open(t)
	equal(t, placeOrder(ctx, db, "o-1"), nil)
	// What a relay does.
	run(t, db, `INSERT INTO outbox_mailbox (id, topic, key, headers, payload)
		SELECT id, 'order-events', aggregate_id, '{}', convert_to(payload::text, 'UTF8')
		FROM outbox_events`)
	stopping, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- billing(stopping, db) }()
	for value(t, db, "SELECT count(*) FROM outbox_mailbox") != "0" {
	}
	stop()
	equal(t, <-ended, nil)
	equal(t, value(t, db, "SELECT string_agg(order_id, ' ') FROM invoices"), "o-1")
	seen, err := billed(ctx, db, value(t, db, "SELECT id FROM outbox_events"))
	equal(t, seen, true)
	equal(t, err, nil)
	for i := 0; i < 2; i++ {
		equal(t, committed(t, db, func(tx *sql.Tx) error {
			status, body, err := answer(ctx, tx, "alice", "key", "x")
			equal(t, status, 201)
			equal(t, string(body), "placed\n")
			return err
		}), nil)
	}
}
