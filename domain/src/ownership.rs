//! The project that a record belongs to, and its creator.
//!
//! Recorded and shown, never enforced: no rule of this crate or of the state compares projects, and
//! every operator may act on the records of all of them (`docs/security.md`).
//!
//! Invariant: both are written once, when the record is created, and only from the cluster version on
//! that has them ([`ServiceVersion::OWNERSHIP`](crate::version::ServiceVersion::OWNERSHIP)). A record
//! from before has neither; it counts to the project `default`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The project of what names none.
pub const DEFAULT_PROJECT: &str = "default";

/// The longest name of a project, in characters: that of a label in DNS.
pub const PROJECT_LENGTH_MAX: usize = 63;

/// The longest creator that is recorded, in bytes; a longer one is cut.
pub const CREATOR_LENGTH_MAX: usize = 256;

/// Why a text is not the name of a project.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "project name {0:?} is not valid: 1 to {PROJECT_LENGTH_MAX} characters out of a-z, 0-9 and '-', \
     beginning and ending with a letter or a digit"
)]
pub struct InvalidProject(pub String);

/// The name of a project: a label as in DNS, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectName(Arc<str>);

impl ProjectName {
    /// Returns the name after checking it.
    ///
    /// # Errors
    ///
    /// It is not a label of DNS in lower case.
    pub fn new(text: &str) -> Result<Self, InvalidProject> {
        let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_valid = (1..=PROJECT_LENGTH_MAX).contains(&text.len())
            && text.bytes().all(is_inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        match is_valid {
            true => Ok(Self(text.into())),
            false => Err(InvalidProject(
                text.chars().take(PROJECT_LENGTH_MAX + 1).collect(),
            )),
        }
    }

    /// Returns the text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it is the project of what names none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.as_str() == DEFAULT_PROJECT
    }
}

impl Default for ProjectName {
    fn default() -> Self {
        Self(DEFAULT_PROJECT.into())
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ProjectName {
    type Err = InvalidProject;

    fn from_str(text: &str) -> Result<Self, InvalidProject> {
        Self::new(text)
    }
}

impl TryFrom<String> for ProjectName {
    type Error = InvalidProject;

    fn try_from(text: String) -> Result<Self, InvalidProject> {
        Self::new(&text)
    }
}

impl From<ProjectName> for String {
    fn from(name: ProjectName) -> Self {
        name.0.to_string()
    }
}

/// The project of a record, and who created it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ownership {
    /// The project; absent in a record from before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// The principal of the request that created it, as `operator:ann`; empty in a record from before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub creator: String,
}

impl Ownership {
    /// Returns the ownership in a request: it names only a project. The default one is left out, so
    /// that it can be named under every cluster version.
    #[must_use]
    pub fn requested(project: Option<ProjectName>) -> Self {
        Self {
            project: project.filter(|project| !project.is_default()),
            creator: String::new(),
        }
    }

    /// Returns the ownership of what a principal creates now.
    #[must_use]
    pub fn new(project: Option<&ProjectName>, principal: &str) -> Self {
        let mut end = principal.len().min(CREATOR_LENGTH_MAX);
        while !principal.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            project: Some(project.cloned().unwrap_or_default()),
            creator: principal[..end].to_owned(),
        }
    }

    /// Returns the project that it counts to.
    #[must_use]
    pub fn project_name(&self) -> &str {
        self.project
            .as_ref()
            .map_or(DEFAULT_PROJECT, ProjectName::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_projects_are_labels_in_lower_case() {
        for good in ["a", "0", "web-7", DEFAULT_PROJECT, &"x".repeat(63)] {
            assert_eq!(ProjectName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a.b",
            "a_b",
            "a b",
            "ä",
            &"x".repeat(64),
        ] {
            let invalid = ProjectName::new(bad).unwrap_err();
            assert!(invalid.0.len() <= 2 * (PROJECT_LENGTH_MAX + 1), "{bad:?}");
        }
    }

    #[test]
    fn what_names_no_project_belongs_to_the_default_one() {
        assert_eq!(Ownership::default().project_name(), "default");
        let made = Ownership::new(None, "operator:ann");
        assert_eq!(made.project, Some(ProjectName::default()));
        assert_eq!(made.creator, "operator:ann");
    }

    /// Goal: a long principal is cut, and never within a character.
    #[test]
    fn creators_are_cut() {
        for before in 0..4 {
            let principal = format!("{}{}", "x".repeat(before), "ä€".repeat(100));
            let creator = Ownership::new(None, &principal).creator;
            assert!((CREATOR_LENGTH_MAX - 3..=CREATOR_LENGTH_MAX).contains(&creator.len()));
            assert!(principal.starts_with(&creator));
        }
    }
}
