package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const maxRecordsPerPoll = 100

func header(record *kgo.Record, name string) string {
	for _, header := range record.Headers {
		if header.Key == name {
			return string(header.Value)
		}
	}
	return ""
}

func bill(ctx context.Context, db *pgx.Conn, record *kgo.Record) error {
	var event Placed
	if err := json.Unmarshal(record.Value, &event); err != nil {
		return err
	}
	said := "repeat"
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var isNew bool
		err := tx.QueryRow(ctx, `SELECT inbox_accept('billing', $1, $2)`,
			header(record, "id"), header(record, "occurred_at")).Scan(&isNew)
		if err != nil || !isNew {
			return err
		}
		said = "applied"
		_, err = tx.Exec(ctx,
			`INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
			 ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
			     cents = invoices.cents + excluded.cents`,
			event.OrderID, event.Version, event.Cents)
		return err
	})
	if err == nil {
		fmt.Println(said, event.OrderID, event.Version)
	}
	return err
}

func consume(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BROKERS")),
		kgo.ConsumerGroup(os.Getenv("KAFKA_GROUP")),
		kgo.ConsumeTopics(os.Getenv("KAFKA_TOPIC")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // no partition moves while its records are worked on
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, maxRecordsPerPoll)
		for records := fetches.RecordIter(); !records.Done(); {
			record := records.Next()
			// Not ctx: what is under way is finished when SIGTERM comes.
			if err := bill(context.Background(), db, record); err != nil {
				return fmt.Errorf("%s/%d/%d: %w", record.Topic, record.Partition, record.Offset, err)
			}
			if err := client.CommitRecords(context.Background(), record); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			fmt.Fprintln(os.Stderr, topic, partition, err) // the client goes on by itself
		})
		client.AllowRebalance()
	}
}
