-- Keys shared by all gateways of one metadata store.
-- kind: what the key signs (receipt). key_enc: 32 random bytes sealed with the master key, base64.
-- state: active (signs and verifies), verify (verifies only), retired (neither).
-- created_at: epoch milliseconds.
CREATE TABLE signing_keys (
    kid        TEXT   NOT NULL PRIMARY KEY,
    kind       TEXT   NOT NULL,
    key_enc    TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX signing_keys_by_kind ON signing_keys (kind, created_at);
