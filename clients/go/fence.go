package outbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/adler32"
	"strings"
	"time"
)

// MaxFencedEvents is what one token holds at most.
const MaxFencedEvents = 100

// FenceToken is the token of events that Emit wrote, for who asks the consumer's database whether
// they are applied; hand it on once the transaction is committed. An id that is given twice counts
// once. No secret. Errors: too many, or an id that is no UUID.
func FenceToken(ids ...string) (string, error) {
	known := map[string]bool{}
	var held []byte
	for _, id := range ids {
		bytes, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
		if err != nil || len(bytes) != 16 || len(id) != 36 {
			return "", fmt.Errorf("outbox: a fence token holds UUIDs, and %q is none", id)
		}
		if !known[string(bytes)] {
			known[string(bytes)] = true
			held = append(held, bytes...)
		}
	}
	if len(known) > MaxFencedEvents {
		return "", fmt.Errorf("outbox: a fence token holds up to %d events, and these are %d: take "+
			"those that the reader looks for, or several tokens", MaxFencedEvents, len(known))
	}
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], adler32.Checksum(held))
	return "obf1." + base64.RawURLEncoding.EncodeToString(append(sum[:], held...)), nil
}

// The states of a Look, and of each of its events.
const (
	Applied = "applied"
	Waiting = "waiting"
	Unknown = "unknown"
	Dead    = "dead"
)

// Look is what a consumer's database says of a token: the worst of its events' states, and each.
type Look struct {
	State  string
	Events []FencedEvent
}

// FencedEvent is one event of a token. Why: see outbox_wait in docs/receiving.md.
type FencedEvent struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Why   string `json:"why"`
}

// Settled says that no later look is expected to say anything else.
func (look Look) Settled() bool {
	for _, event := range look.Events {
		if event.Why == "forgotten" {
			return true
		}
	}
	return look.State == Applied || look.State == Dead
}

// Queryer is a *sql.DB, *sql.Conn or *sql.Tx.
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, values ...any) *sql.Row
}

// LookFor is one look in the consumer's database, which waits for nobody. Under REPEATABLE READ the
// answer stays that of the transaction's snapshot. What is no token is an error with SQLSTATE 22023.
func LookFor(ctx context.Context, db Queryer, consumer, token string) (Look, error) {
	var look Look
	var events string
	err := db.QueryRowContext(ctx, `SELECT state, events::text FROM outbox_wait($1, $2)`,
		consumer, token).Scan(&look.State, &events)
	if err == nil {
		err = json.Unmarshal([]byte(events), &look.Events)
	}
	return look, err
}

const (
	firstPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// WaitFor looks until the answer is settled. Where the context is done before, it returns the last
// look with the context's error. An outage ends it.
func WaitFor(ctx context.Context, db *sql.DB, consumer, token string) (Look, error) {
	var last Look
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		look, err := LookFor(ctx, db, consumer, token)
		if ctx.Err() != nil && err != nil {
			return last, ctx.Err()
		}
		if err != nil || look.Settled() {
			return look, err
		}
		last = look
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}
