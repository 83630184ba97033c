//! Topics, groups, subscriptions, lag: administration calls to all masters.
