//! How a simulated hypervisor answers when it does not simply do what it is told.

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It is done and answered.
    Normal,
    /// The hypervisor says no; no effect.
    Refuse(String),
    /// The connection breaks before an answer.
    Gone {
        /// Whether the call was done all the same.
        effect: bool,
    },
    /// No answer in time.
    TimeOut {
        /// Whether the call was done all the same.
        effect: bool,
    },
    /// It is done twice, and the second answer is given.
    Repeat,
    /// It is done later than usual.
    Late {
        /// By how much.
        by_ms: u64,
    },
    /// It is done as usual, but the answer takes longer.
    LateAnswer {
        /// By how much.
        by_ms: u64,
    },
}
