// Orders and their billing, in Go; the folder above says what the commands do.
//
// usage: orders emit|consume|receive|serve
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

type command func(ctx context.Context) error

func main() {
	commands := map[string]command{"emit": emit, "consume": consume, "receive": receive,
		"serve": serve}
	if len(os.Args) != 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: orders emit|consume|receive|serve")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := commands[os.Args[1]](ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
