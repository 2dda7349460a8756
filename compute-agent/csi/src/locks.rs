//! One call at a time for each volume.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use berth_domain::refusal::{Code, Refusal};

/// Which volumes calls deal with just now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Arc<Mutex<BTreeSet<String>>>);

/// A call deals with a volume, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    locks: Locks,
    volume: String,
}

impl Locks {
    /// Begins to deal with a volume; refused while another call does.
    pub(crate) fn take(&self, volume: &str) -> Result<Lock, Refusal> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.insert(volume.to_owned()) {
            return Ok(Lock {
                locks: self.clone(),
                volume: volume.to_owned(),
            });
        }
        let message = format!("another call deals with volume {volume:?}; ask again");
        Err(Refusal::new(Code::Aborted, "OPERATION_PENDING", message))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut taken = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_others_beside_it() {
        let locks = Locks::default();
        let a = locks.take("a").unwrap();
        assert_eq!(locks.take("a").unwrap_err().code, Code::Aborted);
        assert!(locks.take("b").is_ok());
        drop(a);
        assert!(locks.take("a").is_ok());
    }
}
