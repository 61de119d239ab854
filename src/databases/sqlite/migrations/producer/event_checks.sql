    CONSTRAINT "OB_INVALID_EVENT: an event needs a topic or an aggregate_type"
        CHECK (coalesce(topic, '') <> '' OR coalesce(aggregate_type, '') <> ''),
    CONSTRAINT "OB_TOPIC_INVALID: a topic has 1 to 249 bytes, without white space and control characters"
        CHECK (coalesce(topic, '') = '' OR (length(CAST(topic AS blob)) <= 249
            AND topic NOT GLOB '*[' || char(1) || '-' || char(32) || char(127) || ']*')),
    CONSTRAINT "OB_INVALID_EVENT: the event_type is empty; say what happened, or leave it null"
        CHECK (event_type <> ''),
    CONSTRAINT "OB_INVALID_EVENT: the id has no or more than 255 bytes"
        CHECK (length(CAST(id AS blob)) BETWEEN 1 AND 255),
    CONSTRAINT "OB_INVALID_EVENT: a field has more than 4096 bytes; put what is long into the payload"
        CHECK (max(length(CAST(coalesce(aggregate_type, '') AS blob)),
                   length(CAST(coalesce(aggregate_id, '') AS blob)),
                   length(CAST(coalesce(event_type, '') AS blob)),
                   length(CAST(coalesce(tenant_id, '') AS blob)),
                   length(CAST(coalesce(schema_id, '') AS blob)),
                   length(CAST(coalesce(schema_version, '') AS blob)),
                   length(CAST(coalesce(key, '') AS blob)),
                   length(CAST(coalesce(routing_key, '') AS blob))) <= 4096),
    CONSTRAINT "OB_PAYLOAD_TOO_LARGE: over 1048576 bytes; store the data elsewhere and send a reference to it (claim check)"
        CHECK (length(CAST(payload AS blob)) <= 1048576),
    CONSTRAINT "OB_INVALID_EVENT: payload is not JSON" CHECK ({{payload_check}}),
    CONSTRAINT "OB_INVALID_EVENT: headers is not a JSON object"
        CHECK (headers IS NULL OR (json_valid(headers) AND json_type(headers) = 'object')),
    CONSTRAINT "OB_INVALID_EVENT: headers has more than 262144 bytes; put what is long into the payload"
        CHECK (length(CAST(headers AS blob)) <= 262144),
