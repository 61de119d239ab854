module outbox/clients/go

go 1.19
