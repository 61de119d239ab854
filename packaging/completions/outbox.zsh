#compdef outbox
# zsh completion for outbox
# Made from the declarations in src/runtime by `write_reference`; edit those.
_outbox() {
    local command=${words[2]-}
    local -i at=2
    case $command in
        dead)
            case ${words[3]-} in
                list | show | retry | discard | edit | export)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list dead letters]' 'show[show one dead letter whole]' 'retry[have dead letters delivered again]' 'discard[delete dead letters for good]' 'edit[change a dead letter before it is retried]' 'export[write dead letters out whole]'
                return
            fi
            ;;
        import)
            case ${words[3]-} in
                debezium)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'debezium[make an outbox.toml of Debezium'\''s options]'
                return
            fi
            ;;
        replay)
            case ${words[3]-} in
                list | resume | cancel)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list replays, running ones first]' 'resume[go on with a replay]' 'cancel[end a replay before it is over]'
                command=$words[2]
                at=2
            fi
            ;;
        routes)
            case ${words[3]-} in
                list | accept | rename | retire | continue | begin)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list the routes that the ledger knows]' 'accept[let a route go on at another destination]' 'rename[give a route another name]' 'retire[forget a route that is gone]' 'continue[the table holds the events it held before]' 'begin[the table holds other events than before]'
                return
            fi
            ;;
        saga)
            case ${words[3]-} in
                list | show | resume | abort)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list the sagas that a service leads]' 'show[show one saga whole]' 'resume[have sagas send again what they wait for]' 'abort[have sagas turn back]'
                return
            fi
            ;;
        scheduled)
            case ${words[3]-} in
                list | cancel)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list delayed events]' 'cancel[delete delayed events before they are due]'
                return
            fi
            ;;
        tenant)
            case ${words[3]-} in
                list | pause | drain | resume)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'list[list the tenants that are paused]' 'pause[send nothing of a tenant for now]' 'drain[pause a tenant once all of it is sent]' 'resume[send a tenant'\''s events again]'
                return
            fi
            ;;
        webhook)
            case ${words[3]-} in
                add | list | test | rotate | disable | enable | delete)
                    command+=" $words[3]"
                    at=3
                    ;;
            esac
            if (( CURRENT == 3 )); then
                _values 'command' 'add[let a receiver subscribe to events]' 'list[list the endpoints of webhooks]' 'test[send an endpoint one event now]' 'rotate[give an endpoint a new secret]' 'disable[send an endpoint nothing for now]' 'enable[deliver to an endpoint again]' 'delete[remove an endpoint for good]'
                return
            fi
            ;;
    esac
    if (( CURRENT == 2 )); then
        _values 'command' 'relay[carry committed events to their destinations]' 'migrate[create or upgrade the outbox'\''s tables]' 'roles[print the rights that each role needs]' 'status[show backlog, owner and routes]' 'top[watch rates, backlog, routes and failing keys]' 'doctor[look whether a relay could run, and what it could not keep]' 'explain[tell the life of one event, and why it waits]' 'wait[wait until a consumer has applied the events of a fence token]' 'dashboard[serve a page that shows it all]' 'replay[send events of the past once more]' 'dead' 'scheduled' 'routes' 'tenant' 'prune[remove old published rows, forgotten ids and expired keys]' 'verify[prove that nothing was lost, repeated or reordered]' 'saga' 'webhook' 'sinks[list the destinations and what each promises]' 'import' 'version[print the version]' --help --version
        return
    fi
    shift $(( at - 1 )) words
    (( CURRENT -= at - 1 ))
    case $command in
        'relay')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--unmatched[an event that no route takes is a dead letter, is done with, or ends the relay before it]:ACTION:(dead_letter finish stop)' \
                '--retention[how long marked rows are kept after they were published]:TIME:' \
                '*--tenant[relay the events of this tenant only]:ID:' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--mode[where events come from]:MODE:(auto stream polling)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '*--to[where events go]:\[NAME=\]URL:' \
                '--topic-template[topic of events that name none]:TEXT:' \
                '*--allowed-topic[topic that events may go to, or a prefix ending in *]:NAME:' \
                '--format[how an event becomes a record]:FORMAT:(raw cloudevents cloudevents-structured debezium)' \
                '--claim-check[where large payloads are kept, so that records carry a reference]:URL:' \
                '--claim-check-above[largest payload that a record carries itself, where claim-check is set]:N:' \
                '--schema-registry[a schema registry with Confluent'\''s API]:URL:' \
                '--schema-framing[what is written before a payload]:FRAMING:(none confluent)' \
                '--on-dead-letter[after a dead letter the later events of its key go on, or wait]:ACTION:(continue block_key)' \
                '--batch-size[most events read at once]:N:' \
                '--poll-busy-ms[wait between reads while events come]:N:' \
                '--poll-idle-ms[longest wait between reads while none come]:N:' \
                '--max-attempts[failed attempts after which an event is a dead letter]:N:' \
                '--retry-base-ms[wait after the first failure]:N:' \
                '--retry-max-ms[longest wait between attempts]:N:' \
                '--max-unrecorded[most events under way and not yet recorded]:N:' \
                '--tenant-share[most of max-unrecorded and max-in-flight-bytes that the events of one tenant may have in a route, so that its burst delays no other]:N:' \
                '--tenant-rate[most events of one tenant that a route sends in a second]:N:' \
                '--max-in-flight-bytes[most bytes of events held in memory]:N:' \
                '--lease-ttl-ms[time after which a hung relay is replaced]:N:' \
                '--shutdown-grace-s[time to finish what is under way when told to stop]:N:' \
                '--check[look at source and destinations, say what was found, and exit]' \
                '--admin[address of health and metrics]:HOST\:PORT:' \
                '--admin-token-file[file with the token that changes on the dashboard need ]:FILE:_files' \
                '--otlp-endpoint[receiver of OTLP over HTTP, such as http]:URL:' \
                '--log-level[least important log lines that are written]:LEVEL:(debug info warn error)' \
                '--log-format[form of the log lines on stderr]:FORMAT:(logfmt json)' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'migrate')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--print[print the SQL and change nothing]' \
                '--uninstall[remove the tables, views and functions with all that they hold]' \
                '--payload[type of the payload column in a new outbox_events]:TYPE:(jsonb json text bytea)' \
                '--max-payload[largest payload that the tables take from now on]:N:' \
                '--only[one side'\''s tables only]:SIDE:(producer consumer)' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'roles')
            _arguments \
                '--schema[PostgreSQL]:NAME:' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--print[print the SQL and change nothing]' \
                '--only[one side'\''s tables only]:SIDE:(producer consumer)' \
                '--writer[role that writes events]:ROLE:' \
                '--relay[role of the relay, in the outbox'\''s database and in that of a mailbox]:ROLE:' \
                '--operator[role of people who look and mend]:ROLE:' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'status')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'top')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--interval[from one look to the next]:TIME:' \
                '--count[end after so many]:N:' \
                '--once[one look, as --count 1]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'doctor')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--unmatched[an event that no route takes is a dead letter, is done with, or ends the relay before it]:ACTION:(dead_letter finish stop)' \
                '--retention[how long marked rows are kept after they were published]:TIME:' \
                '*--tenant[relay the events of this tenant only]:ID:' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--mode[where events come from]:MODE:(auto stream polling)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '*--to[where events go]:\[NAME=\]URL:' \
                '--topic-template[topic of events that name none]:TEXT:' \
                '*--allowed-topic[topic that events may go to, or a prefix ending in *]:NAME:' \
                '--format[how an event becomes a record]:FORMAT:(raw cloudevents cloudevents-structured debezium)' \
                '--claim-check[where large payloads are kept, so that records carry a reference]:URL:' \
                '--claim-check-above[largest payload that a record carries itself, where claim-check is set]:N:' \
                '--schema-registry[a schema registry with Confluent'\''s API]:URL:' \
                '--schema-framing[what is written before a payload]:FRAMING:(none confluent)' \
                '--on-dead-letter[after a dead letter the later events of its key go on, or wait]:ACTION:(continue block_key)' \
                '--batch-size[most events read at once]:N:' \
                '--poll-busy-ms[wait between reads while events come]:N:' \
                '--poll-idle-ms[longest wait between reads while none come]:N:' \
                '--max-attempts[failed attempts after which an event is a dead letter]:N:' \
                '--retry-base-ms[wait after the first failure]:N:' \
                '--retry-max-ms[longest wait between attempts]:N:' \
                '--max-unrecorded[most events under way and not yet recorded]:N:' \
                '--tenant-share[most of max-unrecorded and max-in-flight-bytes that the events of one tenant may have in a route, so that its burst delays no other]:N:' \
                '--tenant-rate[most events of one tenant that a route sends in a second]:N:' \
                '--max-in-flight-bytes[most bytes of events held in memory]:N:' \
                '--lease-ttl-ms[time after which a hung relay is replaced]:N:' \
                '--shutdown-grace-s[time to finish what is under way when told to stop]:N:' \
                '--dry-run[only say what would be done]' \
                '*--consumer-db[a consumer'\''s database, whose mailboxes, inboxes and dead letters are looked at, too]:URL:' \
                '--fix[run the statements that mend what was found]' \
                '--fix-as[the source'\''s database as one who may run them, mostly the owner of the tables]:URL:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'explain')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--key[what is not finished of this key, or of this aggregate id where events have no key]:KEY:' \
                '--tenant[with --key]:ID:' \
                '--limit[most dead letters, delayed events, events of a key, sagas or replays listed]:N:' \
                '*--consumer-db[a consumer'\''s database, whose mailboxes, inboxes and dead letters are looked at, too]:URL:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'wait')
            _arguments \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the consumer that is to have applied them]:NAME:' \
                '--consumer-db[the consumer'\''s database]:URL:' \
                '--timeout[how long to wait]:TIME:' \
                '--json[print JSON]' \
                '--help[say what it does]'
            ;;
        'dashboard')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--listen[address of the page]:HOST\:PORT:' \
                '--admin-token-file[file with the token that changes on the dashboard need ]:FILE:_files' \
                '*--consumer-db[a consumer'\''s database, whose mailboxes, inboxes and dead letters are looked at, too]:URL:' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'replay')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '*--to[where events go]:\[NAME=\]URL:' \
                '--topic-template[topic of events that name none]:TEXT:' \
                '*--allowed-topic[topic that events may go to, or a prefix ending in *]:NAME:' \
                '--format[how an event becomes a record]:FORMAT:(raw cloudevents cloudevents-structured debezium)' \
                '--claim-check[where large payloads are kept, so that records carry a reference]:URL:' \
                '--claim-check-above[largest payload that a record carries itself, where claim-check is set]:N:' \
                '--schema-registry[a schema registry with Confluent'\''s API]:URL:' \
                '--schema-framing[what is written before a payload]:FRAMING:(none confluent)' \
                '--max-attempts[failed attempts after which an event is a dead letter]:N:' \
                '--retry-base-ms[wait after the first failure]:N:' \
                '--retry-max-ms[longest wait between attempts]:N:' \
                '--max-unrecorded[most events under way and not yet recorded]:N:' \
                '--max-in-flight-bytes[most bytes of events held in memory]:N:' \
                '--shutdown-grace-s[time to finish what is under way when told to stop]:N:' \
                '--route[the route whose events are sent again]:NAME:' \
                '--since[events that occurred then or later]:TIME:' \
                '--until[events that occurred before, likewise]:TIME:' \
                '--key[events of this key, or of this aggregate id where they have no key]:KEY:' \
                '--event-type[events of this type]:TYPE:' \
                '*--tenant[events of this tenant]:ID:' \
                '--dead-letters[the dead letters of the route instead of what it has published]' \
                '--yes[do not ask, also where all of the history is to be sent]' \
                '--rate[most events sent in a second, up to 1000000]:N/s:' \
                '--as-new[as new events, which inboxes apply once more]' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--dry-run[only say what would be done]' \
                '*--consumer-db[a consumer'\''s database, whose mailboxes, inboxes and dead letters are looked at, too]:URL:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'replay list')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--limit[most dead letters, delayed events, events of a key, sagas or replays listed]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'replay resume')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '*--to[where events go]:\[NAME=\]URL:' \
                '--topic-template[topic of events that name none]:TEXT:' \
                '*--allowed-topic[topic that events may go to, or a prefix ending in *]:NAME:' \
                '--format[how an event becomes a record]:FORMAT:(raw cloudevents cloudevents-structured debezium)' \
                '--claim-check[where large payloads are kept, so that records carry a reference]:URL:' \
                '--claim-check-above[largest payload that a record carries itself, where claim-check is set]:N:' \
                '--schema-registry[a schema registry with Confluent'\''s API]:URL:' \
                '--schema-framing[what is written before a payload]:FRAMING:(none confluent)' \
                '--max-attempts[failed attempts after which an event is a dead letter]:N:' \
                '--retry-base-ms[wait after the first failure]:N:' \
                '--retry-max-ms[longest wait between attempts]:N:' \
                '--max-unrecorded[most events under way and not yet recorded]:N:' \
                '--max-in-flight-bytes[most bytes of events held in memory]:N:' \
                '--shutdown-grace-s[time to finish what is under way when told to stop]:N:' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'replay cancel')
            _arguments \
                '--from[database to read events from]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--route[dead letters of this route]:NAME:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--error-code[dead letters that failed with this error, for example OB_RECORD_REFUSED]:CODE:' \
                '--limit[most dead letters, delayed events, events of a key, sagas or replays listed]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead show')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead retry')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--route[dead letters of this route]:NAME:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--error-code[dead letters that failed with this error, for example OB_RECORD_REFUSED]:CODE:' \
                '--all[every one of the table]' \
                '--to[deliver them by this route from now on, for example because theirs is gone]:ROUTE:' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead discard')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--route[dead letters of this route]:NAME:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--error-code[dead letters that failed with this error, for example OB_RECORD_REFUSED]:CODE:' \
                '--all[every one of the table]' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead edit')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--route[dead letters of this route]:NAME:' \
                '--payload-file[file with the new payload]:FILE:_files' \
                '--topic[the new topic]:TOPIC:' \
                '--key[the new key]:KEY:' \
                '--headers[the new headers, a JSON object, in place of all that there were]:JSON:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'dead export')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--consumer[the dead letters of this consumer'\''s inbox, in the consumer'\''s database, instead of the relay'\''s]:NAME:' \
                '--route[dead letters of this route]:NAME:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--error-code[dead letters that failed with this error, for example OB_RECORD_REFUSED]:CODE:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'scheduled list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--limit[most dead letters, delayed events, events of a key, sagas or replays listed]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'scheduled cancel')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--event-type[dead letters or delayed events of this event type]:TYPE:' \
                '--key[dead letters or delayed events of this key]:KEY:' \
                '--tenant[dead letters or delayed events of this tenant]:ID:' \
                '--all[every one of the table]' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes accept')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '*--tenant[the route of the relay of this tenant, as that relay has it]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes rename')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '*--tenant[the route of the relay of this tenant, as that relay has it]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes retire')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '*--tenant[the route of the relay of this tenant, as that relay has it]:ID:' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--yes[also where the route has not finished all events]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes continue')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'routes begin')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'tenant list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'tenant pause')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'tenant drain')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--within[how long to wait for the tenant'\''s events to be sent]:TIME:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'tenant resume')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--default-tenant[tenant of events that name none]:ID:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--reason[why, for the audit and those who look]:TEXT:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'prune')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--retention[how long marked rows are kept after they were published]:TIME:' \
                '--inbox-retention[how long a consumer'\''s inbox remembers ids]:TIME:' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'verify')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--table[outbox table, exact and case kept]:NAME:' \
                '--preset[known shape of the table]:NAME:(pending-published new-sent processed-at delete-when-sent camel-case debezium)' \
                '--after-publish[what happens to a published row]:ACTION:(delete mark keep)' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '*--produced[journals of what producers committed, as JSON lines]:FILE...:_files' \
                '*--received[journals of what consumers received and applied]:FILE...:_files' \
                '--effect-db[a consumer'\''s database, to look at its effects themselves]:URL:' \
                '--effect-query[query of --effect-db that gives a row for each effect, in their order]:SQL:' \
                '--textfile[also writes the verdict there as metrics, in one step]:FILE:_files' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'saga list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--name[sagas of this name]:NAME:' \
                '--state[sagas in this state]:STATE:(running compensating stuck completed compensated)' \
                '--stuck-for[sagas that are not finished and have made no progress for this long]:TIME:' \
                '--limit[most dead letters, delayed events, events of a key, sagas or replays listed]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'saga show')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'saga resume')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--name[sagas of this name]:NAME:' \
                '--state[sagas in this state]:STATE:(running compensating stuck completed compensated)' \
                '--stuck-for[sagas that are not finished and have made no progress for this long]:TIME:' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'saga abort')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--name[sagas of this name]:NAME:' \
                '--state[sagas in this state]:STATE:(running compensating stuck completed compensated)' \
                '--stuck-for[sagas that are not finished and have made no progress for this long]:TIME:' \
                '--dry-run[only say what would be done]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook add')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--id[the endpoint'\''s id, up to 64 letters, digits and - _ . ]:ID:' \
                '--events[the event types that it gets, with commas between them]:PATTERNS:' \
                '--tenant[it gets the events of this tenant only]:ID:' \
                '--type[v1]:TYPE:(v1 v1a)' \
                '--secret-file[file with the secret, whsec_... or whsk_..., instead of a new one]:FILE:_files' \
                '--key-file[file with the key that secrets are stored under, as the relay has it]:FILE:_files' \
                '--allow[hosts by name, addresses and ranges ]:HOSTS:' \
                '--allow-http[URLs without TLS, too]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook list')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook test')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--key-file[file with the key that secrets are stored under, as the relay has it]:FILE:_files' \
                '--allow[hosts by name, addresses and ranges ]:HOSTS:' \
                '--allow-http[URLs without TLS, too]' \
                '--ca-file[PEM file of the authorities that receivers'\'' certificates are by]:FILE:_files' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook rotate')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--type[v1]:TYPE:(v1 v1a)' \
                '--secret-file[file with the secret, whsec_... or whsk_..., instead of a new one]:FILE:_files' \
                '--overlap[how long the former secret signs as well]:TIME:' \
                '--key-file[file with the key that secrets are stored under, as the relay has it]:FILE:_files' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook disable')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--reason[why, for those who look]:TEXT:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook enable')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'webhook delete')
            _arguments \
                '--db[database]:URL:' \
                '*--owner[PostgreSQL]:ROLE:' \
                '--password-file[PostgreSQL]:FILE:_files' \
                '--schema[PostgreSQL]:NAME:' \
                '--require-tls[refuse to reach another machine in clear or without proof who it is]' \
                '--connect-timeout-s[longest wait for a connection to the database]:N:' \
                '--yes[also where something waits for the endpoint or was given up on]' \
                '--json[print JSON]' \
                '--config[configuration file]:FILE:_files' \
                '--help[say what it does]'
            ;;
        'sinks')
            _arguments \
                '--json[print JSON]' \
                '--help[say what it does]'
            ;;
        'import debezium')
            _arguments \
                '--json[print JSON]' \
                '--help[say what it does]' \
                '*:FILE:_files'
            ;;
        'version')
            _arguments \
                '--json[print JSON]' \
                '--help[say what it does]'
            ;;
    esac
}
if [ "$funcstack[1]" = _outbox ]; then
    _outbox "$@"
else
    compdef _outbox outbox
fi
