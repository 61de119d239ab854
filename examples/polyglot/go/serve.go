package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const maxBodyBytes = 65536

type Answer struct {
	Status  int
	Headers map[string]string
	Body    []byte
}

func text(status int, body string) Answer {
	return Answer{Status: status, Body: []byte(body + "\n")}
}

type order struct {
	OrderID *string `json:"order_id"`
	Cents   *int64  `json:"cents"`
}

// The answer to POST /orders; claim, order, event and answer commit together.
func answer(ctx context.Context, db *pgxpool.Pool, caller, key string,
	body []byte) (result Answer, err error) {
	var wanted order
	err = json.Unmarshal(body, &wanted)
	if err != nil || wanted.OrderID == nil || wanted.Cents == nil {
		return text(400, "order_id (text) and cents (a whole number) are needed"), nil
	}
	request := sha256.Sum256(append([]byte("POST /orders\n"), body...))
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var state string
		var attempt, status *int
		err := tx.QueryRow(ctx, `SELECT * FROM idempotency_claim($1, $2, $3)`,
			caller, key, hex.EncodeToString(request[:])).
			Scan(&state, &attempt, &status, &result.Headers, &result.Body)
		switch {
		case err != nil:
			return err
		case state == "running":
			result = Answer{Status: 409, Headers: map[string]string{"Retry-After": "1"}}
			return nil
		case state == "mismatch":
			result = text(422, "the key was used for another request")
			return nil
		case state == "repeat":
			result.Status = *status
			return nil
		}
		placed, err := storeOrder(ctx, tx, *wanted.OrderID, caller, *wanted.Cents)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(placed)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx,
			`SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => $1,
			     event_type => 'OrderPlaced', payload => $2)`,
			placed.OrderID, string(payload)); err != nil {
			return err
		}
		result = Answer{201, map[string]string{"Content-Type": "application/json"}, payload}
		_, err = tx.Exec(ctx, `SELECT idempotency_complete($1, $2, $3, $4, $5, $6)`,
			caller, key, attempt, result.Status, result.Headers, result.Body)
		return err
	})
	return result, err
}

func post(db *pgxpool.Pool, r *http.Request) Answer {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return Answer{Status: 400}
	}
	if r.Method != "POST" || r.URL.Path != "/orders" {
		return Answer{Status: 404}
	}
	if len(body) > maxBodyBytes {
		return Answer{Status: 413}
	}
	// Whoever stands before this service has authenticated the caller.
	caller, key := r.Header.Get("X-User"), r.Header.Get("Idempotency-Key")
	if caller == "" || key == "" || len(key) > 255 {
		return text(400, "X-User and Idempotency-Key (up to 255 bytes) are needed")
	}
	result, err := answer(r.Context(), db, caller, key, body)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Code, "23") {
		return text(422, "refused: "+refused.Message)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return text(500, "rolled back; send it again with the same key")
	}
	return result
}

func serve(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result := post(db, r)
		for name, value := range result.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(result.Status)
		w.Write(result.Body)
	})}
	go server.Serve(listener)
	<-ctx.Done()
	return server.Shutdown(context.Background())
}
