//! Parsing of names, durations, times and numbers of requests.
