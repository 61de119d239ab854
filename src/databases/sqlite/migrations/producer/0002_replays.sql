-- What `outbox replay` remembers of its runs.
{{replays}}
