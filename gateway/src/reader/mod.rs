//! Reading a topic without a group: cursors, browsing in the order of storing, and the live tail that sockets share.

mod cursor;
mod feed;
mod filter;
mod merge;
#[cfg(test)]
mod merge_test;
mod origin;
mod pace;
mod ring;
mod tail;
mod view;

pub(crate) use cursor::{Cursor, Floor};
#[cfg(test)]
pub(crate) use feed::Gap;
pub(crate) use feed::{Chunk, Feed, FeedOptions, GapReason, Room, State, Wanted};
pub(crate) use filter::TagFilter;
pub(crate) use merge::{Limits, Merge, Order, memory_of};
pub(crate) use origin::{Origin, Until, ends, starts};
pub(crate) use ring::Text;
pub(crate) use tail::Tails;
pub(crate) use view::{Opened, TopicView, open};
