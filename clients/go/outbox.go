// Package outbox writes events, receives from a mailbox and answers Idempotency-Key over the SQL
// functions that `outbox migrate` makes in PostgreSQL. It needs database/sql and a driver whose
// errors have SQLState() (pgx's stdlib, lib/pq), and keeps no state of its own.
package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Version is the product's.
const Version = "0.1.0"

// Event is what Emit writes. What is empty is left out; a topic, or an aggregate type, is needed.
type Event struct {
	Topic         string
	AggregateType string
	AggregateID   string
	EventType     string
	Key           string
	Payload       any // string, []byte and json.RawMessage as they are; anything else as JSON
	Headers       map[string]string
	AvailableAt   time.Time // not before then
	LockKey       bool      // writers of one key wait for each other
}

// Emit writes one event in the caller's transaction and returns its id; it never commits. After an
// error the transaction can only be rolled back.
func Emit(ctx context.Context, tx *sql.Tx, event Event) (id string, err error) {
	payload, err := textOf(event.Payload)
	if err != nil {
		return "", fmt.Errorf("outbox: the payload: %w", err)
	}
	var headers any
	if event.Headers != nil {
		if headers, err = textOf(event.Headers); err != nil {
			return "", err
		}
	}
	var available any
	if !event.AvailableAt.IsZero() {
		available = event.AvailableAt
	}
	err = tx.QueryRowContext(ctx,
		`SELECT outbox_emit(topic => $1, payload => $2, aggregate_type => $3, aggregate_id => $4,
		     event_type => $5, key => $6, headers => $7, available_at => $8, lock_key => $9)`,
		orNull(event.Topic), payload, orNull(event.AggregateType), orNull(event.AggregateID),
		orNull(event.EventType), orNull(event.Key), headers, available, event.LockKey).Scan(&id)
	return id, err
}

// The states of a Claim.
const (
	New      = "new"      // do the work, then CompleteKey
	Repeat   = "repeat"   // commit, send the stored answer; Status 0: done, no answer was kept
	Running  = "running"  // 409: another transaction has the key now
	Mismatch = "mismatch" // 422: the key was used for another request
)

// Claim is what is known of an Idempotency-Key.
type Claim struct {
	State   string
	Attempt int
	Status  int
	Headers http.Header
	Body    []byte
}

// ClaimKey claims an Idempotency-Key in the transaction that does the request's work, too; it never
// waits. `scope` is the authenticated caller, `fingerprint` tells requests apart.
func ClaimKey(ctx context.Context, tx *sql.Tx, scope, key, fingerprint string) (Claim, error) {
	var claim Claim
	var attempt, status sql.NullInt64
	var headers []byte
	err := tx.QueryRowContext(ctx,
		`SELECT state, attempt, status, headers::text, body FROM idempotency_claim($1, $2, $3)`,
		scope, key, fingerprint).Scan(&claim.State, &attempt, &status, &headers, &claim.Body)
	if err != nil {
		return Claim{}, err
	}
	claim.Attempt, claim.Status = int(attempt.Int64), int(status.Int64)
	claim.Headers, err = headersOf(headers)
	return claim, err
}

// ErrLost says that a claim is no longer this attempt's: roll back.
var ErrLost = errors.New("outbox: the claim on the key is another attempt's now")

// CompleteKey keeps the answer for repeats, in the same transaction.
func CompleteKey(ctx context.Context, tx *sql.Tx, scope, key string, claim Claim, status int,
	headers http.Header, body []byte) error {
	kept := map[string]any{}
	for name, values := range headers {
		if len(values) == 1 {
			kept[name] = values[0]
		} else {
			kept[name] = values
		}
	}
	text, err := textOf(kept)
	if err != nil {
		return err
	}
	var held bool
	err = tx.QueryRowContext(ctx, `SELECT idempotency_complete($1, $2, $3, $4, $5, $6)`,
		scope, key, claim.Attempt, status, text, body).Scan(&held)
	if err == nil && !held {
		err = ErrLost
	}
	return err
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func textOf(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case []byte:
		return string(value), nil
	case json.RawMessage:
		return string(value), nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// Each value is a text or a list of texts.
func headersOf(text []byte) (http.Header, error) {
	headers := http.Header{}
	if len(text) == 0 {
		return headers, nil
	}
	var kept map[string]any
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, err
	}
	for name, value := range kept {
		many, ok := value.([]any)
		if !ok {
			many = []any{value}
		}
		for _, one := range many {
			headers.Add(name, fmt.Sprint(one))
		}
	}
	return headers, nil
}
