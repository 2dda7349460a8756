//! How a simulated hypervisor replies when it does not simply carry a request out.

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It is done and answered.
    Normal,
    /// The hypervisor refuses; no effect.
    Refuse(String),
    /// The connection breaks before a reply.
    Gone {
        /// Whether the call was done all the same.
        effect: bool,
    },
    /// No reply in time.
    TimeOut {
        /// Whether the call was done all the same.
        effect: bool,
    },
    /// It is done twice, and the second reply is sent.
    Repeat,
    /// It is done later than usual.
    Late {
        /// By how much.
        by_ms: u64,
    },
    /// It is done as usual, but the reply takes longer.
    LateAnswer {
        /// By how much.
        by_ms: u64,
    },
}
