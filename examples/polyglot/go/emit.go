package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

type Placed struct {
	OrderID string `json:"order_id"`
	Version int    `json:"version"`
	Cents   int64  `json:"cents"`
}

// The business row; its lock makes writers of one order wait for each other.
func storeOrder(ctx context.Context, tx pgx.Tx, order, customer string,
	cents int64) (Placed, error) {
	placed := Placed{OrderID: order, Cents: cents}
	err := tx.QueryRow(ctx,
		`INSERT INTO orders (id, customer, cents) VALUES ($1, $2, $3)
		 ON CONFLICT (id) DO UPDATE SET cents = orders.cents + excluded.cents,
		     version = orders.version + 1 RETURNING version`,
		order, customer, cents).Scan(&placed.Version)
	return placed, err
}

func placeOrder(ctx context.Context, db *pgx.Conn, order, customer string,
	cents int64) (placed Placed, err error) {
	// Commits, or rolls back where the function fails.
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if placed, err = storeOrder(ctx, tx, order, customer, cents); err != nil {
			return err
		}
		payload, err := json.Marshal(placed)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			 VALUES ('Order', $1, 'OrderPlaced', $2)`, order, string(payload))
		return err
	})
	return placed, err
}

func emit(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	refused := 0
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var order, customer string
		var cents int64
		if _, err := fmt.Sscan(lines.Text(), &order, &customer, &cents); err != nil {
			return fmt.Errorf("%q is not ORDER CUSTOMER CENTS: %w", lines.Text(), err)
		}
		placed, err := placeOrder(ctx, db, order, customer, cents)
		if err != nil {
			fmt.Fprintln(os.Stderr, "refused", order, err)
			refused++
			continue
		}
		fmt.Println("placed", order, placed.Version)
	}
	if refused > 0 {
		return errors.New("not all orders were placed")
	}
	return lines.Err()
}
