package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type taken struct {
	Position int64
	Payload  []byte
}

// Takes and applies in one transaction; false where nothing was there.
func billFromMailbox(ctx context.Context, db *pgx.Conn) (bool, error) {
	var messages []taken
	var billed []Placed
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx,
			`SELECT position, payload FROM outbox_mailbox_take('billing', 'default', 100)`)
		var err error
		if messages, err = pgx.CollectRows(rows, pgx.RowToStructByPos[taken]); err != nil {
			return err
		}
		for _, message := range messages {
			event, err := billPlaced(ctx, tx, message.Payload)
			if err == nil {
				_, err = tx.Exec(ctx, `SELECT outbox_mailbox_done('billing', 'default', $1)`,
					message.Position)
			}
			if err != nil {
				return failedAt{message.Position, err}
			}
			billed = append(billed, event)
		}
		return nil
	})
	var failed failedAt
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == "40001" || refused.Code == "40P01"):
		return true, nil // nothing happened; again
	case errors.As(err, &failed) && !db.IsClosed():
		// All of it was rolled back; the others come again at once, this one and its key later.
		fmt.Fprintln(os.Stderr, "failed", failed.position, err)
		_, err = db.Exec(ctx, `SELECT outbox_mailbox_failed('billing', 'default', $1, $2)`,
			failed.position, err.Error())
		return true, err
	case err != nil:
		return false, err
	}
	for _, event := range billed {
		fmt.Println("applied", event.OrderID, event.Version)
	}
	return len(messages) > 0, nil
}

type failedAt struct {
	position int64
	error
}

func (f failedAt) Unwrap() error { return f.error }

func billPlaced(ctx context.Context, tx pgx.Tx, payload []byte) (event Placed, err error) {
	if err = json.Unmarshal(payload, &event); err != nil {
		return event, err
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
		 ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
		     cents = invoices.cents + excluded.cents`,
		event.OrderID, event.Version, event.Cents)
	return event, err
}

func receive(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	for ctx.Err() == nil {
		// Not ctx: what is under way is finished when SIGTERM comes.
		some, err := billFromMailbox(context.Background(), db)
		if err != nil {
			return err
		}
		if !some {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}
