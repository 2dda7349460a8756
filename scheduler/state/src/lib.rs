//! The replicated state machine: a deterministic function of the commands applied to it.

pub mod command;
