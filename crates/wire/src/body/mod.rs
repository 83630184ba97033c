//! JSON bodies of requests and answers.

pub mod gantry;
