//! Strict JSON for requests: one level at a time, without recursion, each fault with its JSON pointer.
