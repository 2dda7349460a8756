//! Persistent memory: namespaces that are made beforehand, each given to one guest at a time.

mod label;

pub use label::{CLASS_PREFIX, InvalidLabel, Label};
