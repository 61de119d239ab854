# bash completion for outbox
# Made from the declarations in src/runtime by `write_reference`; edit those.
_outbox() {
    local word=$2 before=$3 command=${COMP_WORDS[1]-} at=2 words=
    COMPREPLY=()
    case $command in
        dead | import | routes | saga | scheduled | tenant | webhook)
            command+=" ${COMP_WORDS[2]-}"
            at=3
            ;;
        replay)
            case ${COMP_WORDS[2]-} in
                list | resume | cancel)
                    command+=" ${COMP_WORDS[2]}"
                    at=3
                    ;;
            esac
            ;;
    esac
    case $before in
        --password-file | --admin-token-file | --payload-file | --produced | --received | --textfile | --secret-file | --key-file | --ca-file | --config)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        --preset) words='pending-published new-sent processed-at delete-when-sent camel-case debezium' ;;
        --after-publish) words='delete mark keep' ;;
        --unmatched) words='dead_letter finish stop' ;;
        --mode) words='auto stream polling' ;;
        --format) words='raw cloudevents cloudevents-structured debezium' ;;
        --schema-framing) words='none confluent' ;;
        --on-dead-letter) words='continue block_key' ;;
        --log-level) words='debug info warn error' ;;
        --log-format) words='logfmt json' ;;
        --state) words='running compensating stuck completed compensated' ;;
        --payload) words='jsonb json text bytea' ;;
        --only) words='producer consumer' ;;
        --type) words='v1 v1a' ;;
        --from | --db | --owner | --schema | --table | --retention | --inbox-retention | --tenant | --default-tenant | --connect-timeout-s | --to | --topic-template | --allowed-topic | --claim-check | --claim-check-above | --schema-registry | --batch-size | --poll-busy-ms | --poll-idle-ms | --max-attempts | --retry-base-ms | --retry-max-ms | --max-unrecorded | --tenant-share | --tenant-rate | --max-in-flight-bytes | --lease-ttl-ms | --shutdown-grace-s | --admin | --listen | --otlp-endpoint | --consumer | --route | --event-type | --key | --since | --until | --rate | --reason | --within | --error-code | --name | --stuck-for | --limit | --topic | --headers | --max-payload | --writer | --relay | --operator | --effect-db | --effect-query | --consumer-db | --timeout | --interval | --count | --fix-as | --id | --events | --overlap | --allow) return ;;
    esac
    if [ -n "$words" ]; then
        :
    elif [ "$COMP_CWORD" -eq 1 ]; then
        words='relay migrate roles status top doctor explain wait dashboard replay dead scheduled routes tenant prune verify saga webhook sinks import version --help --version'
    elif [ "$COMP_CWORD" -lt "$at" ]; then
        case ${COMP_WORDS[1]} in
            dead) words='list show retry discard edit export' ;;
            import) words='debezium' ;;
            replay) words='list resume cancel' ;;
            routes) words='list accept rename retire continue begin' ;;
            saga) words='list show resume abort' ;;
            scheduled) words='list cancel' ;;
            tenant) words='list pause drain resume' ;;
            webhook) words='add list test rotate disable enable delete' ;;
        esac
    else
        case $command in
            'relay') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --unmatched --retention --tenant --default-tenant --mode --connect-timeout-s --to --topic-template --allowed-topic --format --claim-check --claim-check-above --schema-registry --schema-framing --on-dead-letter --batch-size --poll-busy-ms --poll-idle-ms --max-attempts --retry-base-ms --retry-max-ms --max-unrecorded --tenant-share --tenant-rate --max-in-flight-bytes --lease-ttl-ms --shutdown-grace-s --check --admin --admin-token-file --otlp-endpoint --log-level --log-format --config --help' ;;
            'migrate') words='--db --owner --password-file --schema --require-tls --after-publish --connect-timeout-s --print --uninstall --payload --max-payload --only --json --config --help' ;;
            'roles') words='--schema --table --consumer --print --only --writer --relay --operator --config --help' ;;
            'status') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --json --config --help' ;;
            'top') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --interval --count --once --json --config --help' ;;
            'doctor') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --unmatched --retention --tenant --default-tenant --mode --connect-timeout-s --to --topic-template --allowed-topic --format --claim-check --claim-check-above --schema-registry --schema-framing --on-dead-letter --batch-size --poll-busy-ms --poll-idle-ms --max-attempts --retry-base-ms --retry-max-ms --max-unrecorded --tenant-share --tenant-rate --max-in-flight-bytes --lease-ttl-ms --shutdown-grace-s --dry-run --consumer-db --fix --fix-as --json --config --help' ;;
            'explain') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --key --tenant --limit --consumer-db --json --config --help' ;;
            'wait') words='--owner --password-file --schema --require-tls --connect-timeout-s --consumer --consumer-db --timeout --json --help' ;;
            'dashboard') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --listen --admin-token-file --consumer-db --config --help' ;;
            'replay') words='list resume cancel --from --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --to --topic-template --allowed-topic --format --claim-check --claim-check-above --schema-registry --schema-framing --max-attempts --retry-base-ms --retry-max-ms --max-unrecorded --max-in-flight-bytes --shutdown-grace-s --route --since --until --key --event-type --tenant --dead-letters --yes --rate --as-new --reason --dry-run --consumer-db --json --config --help' ;;
            'replay list') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --limit --json --config --help' ;;
            'replay resume') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --to --topic-template --allowed-topic --format --claim-check --claim-check-above --schema-registry --schema-framing --max-attempts --retry-base-ms --retry-max-ms --max-unrecorded --max-in-flight-bytes --shutdown-grace-s --reason --json --config --help' ;;
            'replay cancel') words='--from --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --reason --json --config --help' ;;
            'dead list') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --consumer --route --event-type --key --tenant --error-code --limit --json --config --help' ;;
            'dead show') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --consumer --json --config --help' ;;
            'dead retry') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --consumer --route --event-type --key --tenant --error-code --all --to --dry-run --json --config --help' ;;
            'dead discard') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --consumer --route --event-type --key --tenant --error-code --all --dry-run --json --config --help' ;;
            'dead edit') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --consumer --route --payload-file --topic --key --headers --json --config --help' ;;
            'dead export') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --consumer --route --event-type --key --tenant --error-code --json --config --help' ;;
            'scheduled list') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --event-type --key --tenant --limit --json --config --help' ;;
            'scheduled cancel') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --event-type --key --tenant --all --dry-run --json --config --help' ;;
            'routes list') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --json --config --help' ;;
            'routes accept') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --tenant --connect-timeout-s --json --config --help' ;;
            'routes rename') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --tenant --connect-timeout-s --json --config --help' ;;
            'routes retire') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --tenant --default-tenant --connect-timeout-s --yes --json --config --help' ;;
            'routes continue') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --json --config --help' ;;
            'routes begin') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --json --config --help' ;;
            'tenant list') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --json --config --help' ;;
            'tenant pause') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --reason --json --config --help' ;;
            'tenant drain') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --reason --within --json --config --help' ;;
            'tenant resume') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --default-tenant --connect-timeout-s --reason --json --config --help' ;;
            'prune') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --retention --inbox-retention --connect-timeout-s --dry-run --json --config --help' ;;
            'verify') words='--db --owner --password-file --schema --require-tls --table --preset --after-publish --connect-timeout-s --produced --received --effect-db --effect-query --textfile --json --config --help' ;;
            'saga list') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --name --state --stuck-for --limit --json --config --help' ;;
            'saga show') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --json --config --help' ;;
            'saga resume') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --name --state --stuck-for --dry-run --json --config --help' ;;
            'saga abort') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --name --state --stuck-for --dry-run --json --config --help' ;;
            'webhook add') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --id --events --tenant --type --secret-file --key-file --allow --allow-http --json --config --help' ;;
            'webhook list') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --json --config --help' ;;
            'webhook test') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --key-file --allow --allow-http --ca-file --json --config --help' ;;
            'webhook rotate') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --type --secret-file --overlap --key-file --json --config --help' ;;
            'webhook disable') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --reason --json --config --help' ;;
            'webhook enable') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --json --config --help' ;;
            'webhook delete') words='--db --owner --password-file --schema --require-tls --connect-timeout-s --yes --json --config --help' ;;
            'sinks') words='--json --help' ;;
            'import debezium') words='--json --help' ;;
            'version') words='--json --help' ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _outbox outbox
