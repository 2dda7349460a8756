//! Until when an operator may write.
//!
//! The task that renews the lease extends it; every write checks it first. So an operator that was
//! suspended, or is cut off from the API server, makes no write after another one may have become active.
//!
//! Invariant: not valid before the first extension, nor after the end of the last one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Until when an operator may write. Clones share it.
#[derive(Clone, Debug)]
pub struct Permit {
    /// `None`: for ever.
    until: Option<Arc<Mutex<Option<Instant>>>>,
}

impl Permit {
    /// Returns one that is valid for ever: for an operator without a lease.
    #[must_use]
    pub fn always() -> Self {
        Self { until: None }
    }

    /// Returns one that is not valid until it is extended.
    #[must_use]
    pub fn new() -> Self {
        Self {
            until: Some(Arc::default()),
        }
    }

    /// Makes it valid until then.
    pub fn extend(&self, until: Instant) {
        self.set(Some(until));
    }

    /// Ends it now.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, value: Option<Instant>) {
        if let Some(until) = &self.until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = value;
        }
    }

    /// Returns whether writes are permitted now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.left().is_zero()
    }

    /// Returns for how long writes are still permitted.
    #[must_use]
    pub fn left(&self) -> Duration {
        let Some(until) = &self.until else {
            return Duration::MAX;
        };
        let until = until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }
}

impl Default for Permit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let permit = Permit::new();
        let other = permit.clone();
        assert!(!permit.is_valid());
        permit.extend(Instant::now() + Duration::from_secs(60));
        assert!(other.is_valid() && other.left() <= Duration::from_secs(60));
        other.extend(Instant::now());
        assert!(!permit.is_valid() && permit.left().is_zero());
        other.extend(Instant::now() + Duration::from_secs(60));
        permit.end();
        assert!(!other.is_valid());
        assert!(Permit::always().is_valid());
    }
}
