//! Topic routes: cached, refreshed on error and every 10 s.
