    CONSTRAINT outbox_payload_size CHECK (
        CASE WHEN octet_length({{payload_text}}) > 1048576
             THEN {{schema}}.outbox_refuse_payload(octet_length({{payload_text}}), 1048576)
             ELSE true END),
    CONSTRAINT outbox_event_valid CHECK (CASE
        WHEN coalesce(topic, '') = '' AND coalesce(aggregate_type, '') = '' THEN
            {{schema}}.outbox_refuse_event('an event needs a topic or an aggregate_type',
                'Without both nothing says where it goes. outbox_emit(topic, payload), or name '
                'arguments: outbox_emit(aggregate_type => ..., aggregate_id => ..., event_type => '
                '..., payload => ...).')
        WHEN topic <> '' AND (octet_length(topic) > 249 OR topic ~ '[[:space:][:cntrl:]]') THEN
            {{schema}}.outbox_refuse_event('the topic is not valid',
                'A topic has 1 to 249 bytes, without white space and control characters.', 'OB003')
        WHEN event_type = '' THEN
            {{schema}}.outbox_refuse_event('the event_type is empty',
                'Say what happened, or leave it null.')
        WHEN greatest(octet_length(aggregate_type), octet_length(aggregate_id),
                octet_length(event_type), octet_length(tenant_id), octet_length(schema_id),
                octet_length(schema_version), octet_length(key), octet_length(routing_key)) > 4096
        THEN
            {{schema}}.outbox_refuse_event('a field has more than 4096 bytes',
                'Put what is long into the payload; fields are names and keys.')
        WHEN jsonb_typeof(headers) <> 'object' THEN
            {{schema}}.outbox_refuse_event('headers is not a JSON object',
                'Write {"name": "value"}, or leave it null.')
        WHEN pg_column_size(headers) > 262144 THEN
            {{schema}}.outbox_refuse_event('headers has more than 262144 bytes',
                'Put what is long into the payload.')
        ELSE true END)
