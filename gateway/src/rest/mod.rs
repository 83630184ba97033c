//! REST: one file per resource; each parses strictly, calls upstream and answers.

mod answer;
pub mod browse;
pub mod dead_letters;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod group_document;
mod group_spec;
pub mod groups;
pub mod in_flight;
mod labels;
pub mod members;
pub mod messages;
pub mod peek;
mod planned;
pub mod raw;
pub mod receive;
pub mod settle;
pub mod subscriptions;
pub mod topic_groups;
mod topic_spec;
pub mod topics;

#[cfg(feature = "fuzzing")]
pub(crate) use fuzzing::{read_body, read_headers};
pub(crate) use planned::PLANNED;

use crate::state::AppState;
use axum::Router;

/// All resources, and what is known but not built.
pub(crate) fn router() -> Router<AppState> {
    Router::new()
        .merge(messages::router())
        .merge(receive::router())
        .merge(settle::router())
        .merge(topics::router())
        .merge(topic_groups::router())
        .merge(groups::router())
        .merge(subscriptions::router())
        .merge(dead_letters::router())
        .merge(peek::router())
        .merge(members::router())
        .merge(in_flight::router())
        .merge(planned::router())
}
