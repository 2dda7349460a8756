//! How much of what each role creates the replicated state holds at most.

/// The most custom traits and classes of persistent memory of one host together. Hosts have some twenty
/// custom traits and a handful of classes.
pub const REPORTED_NAMES_MAX: usize = 256;
