//! One call at a time for each volume, and for each path.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use berth_domain::refusal::{Code, Refusal};

/// Which volumes and paths calls deal with just now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Arc<Mutex<BTreeSet<Subject>>>);

/// What one call at a time deals with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Volume(String),
    /// Without what makes no difference in it, as a slash at its end.
    Path(PathBuf),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(id) => write!(f, "volume {id:?}"),
            Self::Path(path) => write!(f, "path {}", path.display()),
        }
    }
}

/// A call deals with a volume and a path, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    locks: Locks,
    subjects: [Subject; 2],
}

impl Locks {
    /// Begins to deal with a volume at a path; refused while another call deals with one of them.
    pub(crate) fn take(&self, volume: &str, path: &Path) -> Result<Lock, Refusal> {
        let volume = Subject::Volume(volume.to_owned());
        let subjects = [volume, Subject::Path(path.components().collect())];
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = subjects.iter().find(|subject| taken.contains(*subject)) {
            let message = format!("another call for {other} is under way; retry");
            return Err(Refusal::new(Code::Aborted, "OPERATION_PENDING", message));
        }
        taken.extend(subjects.iter().cloned());
        Ok(Lock {
            locks: self.clone(),
            subjects,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut taken = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in &self.subjects {
            taken.remove(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_others_beside_it() {
        let locks = Locks::default();
        let take = |volume: &str, path: &str| locks.take(volume, Path::new(path));
        let a = take("a", "/1").unwrap();
        assert_eq!(take("a", "/2").unwrap_err().code, Code::Aborted);
        let refused = take("b", "//1/").unwrap_err();
        assert_eq!(
            refused.message,
            "another call for path /1 is under way; retry"
        );
        // What was refused holds nothing.
        assert!(take("b", "/2").is_ok());
        // A volume that is called like a path is none.
        assert!(take("/1", "/3").is_ok());
        drop(a);
        assert!(take("a", "/1").is_ok());
    }
}
