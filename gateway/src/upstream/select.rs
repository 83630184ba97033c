//! Queue choice: by ordering key, else round robin that avoids brokers in trouble.
