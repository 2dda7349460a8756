//! What a member retains in memory besides its state, and how much that may become.

/// One kind of retained data. What has no size in bytes of its own is bounded by its number alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// What it is, as `log_entries`.
    pub name: &'static str,
    /// How many there are.
    pub count: u64,
    /// How many there may be.
    pub count_max: u64,
    /// Their size in bytes; 0 where only the number is bounded.
    pub bytes: u64,
    /// How many bytes they may have; 0 where only the number is bounded.
    pub bytes_max: u64,
}

impl Retained {
    /// Returns what is bounded by its number alone.
    #[must_use]
    pub fn counted(name: &'static str, count: usize, count_max: usize) -> Self {
        Self {
            name,
            count: count as u64,
            count_max: count_max as u64,
            ..Self::default()
        }
    }

    /// Adds the size in bytes and its bound.
    #[must_use]
    pub fn with_bytes(self, bytes: u64, bytes_max: u64) -> Self {
        Self {
            bytes,
            bytes_max,
            ..self
        }
    }
}
