-- Which tenants `outbox tenant pause` and `drain` have stopped.
{{paused_tenants}}
